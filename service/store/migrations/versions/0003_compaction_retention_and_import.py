"""Columns and tables for compaction, retention and import."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("organisations", sa.Column("held_since", sa.BigInteger(), nullable=True))
    op.add_column("organisations", sa.Column("held_reason", sa.String(), nullable=True))
    op.create_table(
        "former_tiers",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("tier", sa.String(), nullable=False),
        sa.Column("left_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_former_tiers_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "tier", name=op.f("pk_former_tiers")),
    )
    op.create_table(
        "imported_files",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("imported_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_imported_files_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", name=op.f("pk_imported_files")),
    )
    op.add_column(
        "segments", sa.Column("seq_base", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("segments", sa.Column("sha256", sa.String(), nullable=True))
    op.drop_index("segments_by_day", table_name="segments")
    op.create_index(
        "segments_by_day", "segments", ["tenant_id", "retired_at", "day", "id"], unique=False
    )


def downgrade() -> None:
    op.drop_index("segments_by_day", table_name="segments")
    op.create_index("segments_by_day", "segments", ["tenant_id", "day"], unique=False)
    op.drop_column("segments", "sha256")
    op.drop_column("segments", "seq_base")
    op.drop_table("imported_files")
    op.drop_table("former_tiers")
    op.drop_column("organisations", "held_reason")
    op.drop_column("organisations", "held_since")
