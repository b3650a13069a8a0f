"""When the last rows were received, beside the last seq."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# No row of a segment was received after it was sealed, by the same clock.
_LAST = """
    UPDATE counters SET received_at = (
        SELECT max(latest) FROM (
            SELECT max(received_at) AS latest FROM journal
            UNION ALL SELECT max(sealed_at) AS latest FROM segments
        ) AS stored
    )
    WHERE name = 'audit_seq'
"""


def upgrade() -> None:
    op.add_column("counters", sa.Column("received_at", sa.BigInteger(), nullable=True))
    op.execute(_LAST)


def downgrade() -> None:
    op.drop_column("counters", "received_at")
