"""Which version of the format the index of a segment has, so that old ones are built again."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("segments", sa.Column("index_version", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("segments", "index_version")
