"""Until when the object of a segment is locked in its bucket, and since when by a legal hold."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("segments", sa.Column("locked_until", sa.BigInteger(), nullable=True))
    op.add_column("segments", sa.Column("lock_held_at", sa.BigInteger(), nullable=True))
