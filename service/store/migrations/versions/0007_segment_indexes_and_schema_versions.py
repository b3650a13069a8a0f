"""The schema version and the index of each segment, and the decoded size of journal batches."""

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
    # What these batches take once decoded is not known; they are sealed within minutes.
    op.execute("UPDATE journal SET size = length(data)")
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows", "size"])


def downgrade() -> None:
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows"])
    op.drop_column("journal", "size")
    op.drop_column("segments", "index_sha256")
    op.drop_column("segments", "index_size")
    op.drop_column("segments", "schema_version")
