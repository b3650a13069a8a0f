"""When stored files were last verified, and what was wrong with them."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("segments", sa.Column("verified_at", sa.BigInteger(), nullable=True))
    op.add_column("segments", sa.Column("damage", sa.String(), nullable=True))
    op.add_column("journal", sa.Column("damage", sa.String(), nullable=True))
    is_damaged = sa.text("damage IS NOT NULL")
    op.create_index(
        "damaged_segments",
        "segments",
        ["tenant_id"],
        sqlite_where=is_damaged,
        postgresql_where=is_damaged,
    )
    op.create_index(
        "damaged_batches",
        "journal",
        ["tenant_id"],
        sqlite_where=is_damaged,
        postgresql_where=is_damaged,
    )


def downgrade() -> None:
    op.drop_index("damaged_batches", "journal")
    op.drop_index("damaged_segments", "segments")
    op.drop_column("journal", "damage")
    op.drop_column("segments", "damage")
    op.drop_column("segments", "verified_at")
