"""Which files registries list no more, and until when past installs were compared with them."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.add_column("artifacts", sa.Column("withdrawn_at", sa.BigInteger(), nullable=True))
    op.create_index("ix_artifacts_withdrawn_at", "artifacts", ["withdrawn_at"])
    op.add_column(
        "organisations", sa.Column("matched_withdrawn_at", sa.BigInteger(), nullable=True)
    )
