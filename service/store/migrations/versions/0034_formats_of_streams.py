"""In what format a stream sends rows."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column(
        "streams", sa.Column("format", sa.String(), nullable=False, server_default="wire")
    )
