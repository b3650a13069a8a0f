"""Days with rows that a clock which was far behind dated before they were received."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "misdated_days",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["organisations.id"],
            name=op.f("fk_misdated_days_tenant_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "day", name=op.f("pk_misdated_days")),
    )


def downgrade() -> None:
    op.drop_table("misdated_days")
