"""Segments that were given up, so that their days never look complete."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lost_segments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("min_seq", sa.BigInteger(), nullable=False),
        sa.Column("max_seq", sa.BigInteger(), nullable=False),
        sa.Column("damage", sa.String(), nullable=False),
        sa.Column("lost_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["organisations.id"],
            name=op.f("fk_lost_segments_tenant_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lost_segments")),
    )


def downgrade() -> None:
    op.drop_table("lost_segments")
