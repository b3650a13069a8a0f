"""The last checkpoint at the end of an export, which its receipt names."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("exports", sa.Column("checkpoint", sa.String(), nullable=True))
    op.add_column("exports", sa.Column("checkpoint_key_id", sa.String(), nullable=True))
