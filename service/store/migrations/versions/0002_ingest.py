"""Ingest: idempotency keys, and an index that counts the journal without reading its batches."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("credential", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_idempotency_keys_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "credential", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False
    )
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day", "rows"], unique=False)


def downgrade() -> None:
    op.drop_index("journal_by_day", table_name="journal")
    op.create_index("journal_by_day", "journal", ["tenant_id", "day"], unique=False)
    op.drop_index(op.f("ix_idempotency_keys_created_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
