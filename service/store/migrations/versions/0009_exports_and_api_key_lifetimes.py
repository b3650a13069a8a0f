"""Exports as a list; owner, last use, expiry and predecessor of API keys."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("created_by", sa.String(), nullable=True))
    op.add_column("api_keys", sa.Column("last_used_at", sa.BigInteger(), nullable=True))
    op.add_column("api_keys", sa.Column("expires_at", sa.BigInteger(), nullable=True))
    op.add_column("api_keys", sa.Column("replaces", sa.String(), nullable=True))
    op.create_table(
        "exports",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("actor_source", sa.String(), nullable=False),
        sa.Column("verdict_source", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("compression", sa.String(), nullable=True),
        sa.Column("is_raw", sa.Boolean(), nullable=False),
        sa.Column("filters", sa.JSON(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("retention_floor", sa.BigInteger(), nullable=True),
        sa.Column("watermark", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("progress_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_rows", sa.BigInteger(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("is_complete", sa.Boolean(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_exports_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index("exports_newest_first", "exports", ["tenant_id", "started_at", "id"])
    op.create_index(
        "exports_under_way",
        "exports",
        ["progress_at"],
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("exports_under_way", table_name="exports")
    op.drop_index("exports_newest_first", table_name="exports")
    op.drop_table("exports")
    op.drop_column("api_keys", "replaces")
    op.drop_column("api_keys", "expires_at")
    op.drop_column("api_keys", "last_used_at")
    op.drop_column("api_keys", "created_by")
