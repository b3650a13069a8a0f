"""Since when documents lack a file, which counts as withdrawn only once another one lacks it."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("artifacts", sa.Column("missed_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_artifacts_missed_at", "artifacts", ["missed_at"])
