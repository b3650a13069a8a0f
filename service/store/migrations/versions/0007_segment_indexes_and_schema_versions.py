"""The schema version and index of each segment; the decoded size and bounds of journal batches."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "segments", sa.Column("schema_version", sa.BigInteger(), nullable=False, server_default="1")
    )
    op.add_column("segments", sa.Column("index_size", sa.BigInteger(), nullable=True))
    op.add_column("segments", sa.Column("index_sha256", sa.String(), nullable=True))
    op.add_column("journal", sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("journal", sa.Column("min_created_at", sa.BigInteger(), nullable=True))
    op.add_column("journal", sa.Column("max_created_at", sa.BigInteger(), nullable=True))
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows", "size"])


def downgrade() -> None:
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows"])
    op.drop_column("journal", "max_created_at")
    op.drop_column("journal", "min_created_at")
    op.drop_column("journal", "size")
    op.drop_column("segments", "index_sha256")
    op.drop_column("segments", "index_size")
    op.drop_column("segments", "schema_version")
