"""The names of advisories: their ids and aliases, by which a search finds their packages.

Those of the list in force are filled in with their ids; aliases come with the next import.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_COLUMNS = ("name", "ecosystem", "package", "advisory_id")


def upgrade() -> None:
    op.create_table(
        "advisory_names",
        *(sa.Column(column, sa.String(), nullable=False) for column in _COLUMNS),
        sa.PrimaryKeyConstraint(*_COLUMNS, name=op.f("pk_advisory_names")),
        sqlite_with_rowid=False,
    )
    # Stored ids of feeds other than `osv` begin with the feed and a space.
    op.execute(
        "INSERT INTO advisory_names (name, ecosystem, package, advisory_id) SELECT DISTINCT"
        " CASE feed WHEN 'osv' THEN advisory_id ELSE substr(advisory_id, length(feed) + 2) END,"
        " ecosystem, package, advisory_id FROM advisories"
    )
