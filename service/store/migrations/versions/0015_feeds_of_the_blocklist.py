"""Feeds of the blocklist: what was imported before is of the feed `osv`."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "advisories", sa.Column("feed", sa.String(), server_default="osv", nullable=False)
    )
    op.add_column(
        "blocklist_imports", sa.Column("feed", sa.String(), server_default="osv", nullable=False)
    )
    op.add_column("blocklist_imports", sa.Column("contents", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("blocklist_imports", "contents")
    op.drop_column("blocklist_imports", "feed")
    op.drop_column("advisories", "feed")
