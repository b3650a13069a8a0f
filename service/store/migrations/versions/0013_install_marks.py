"""Marks of recorded installs."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "install_marks",
        sa.Column("install", sa.String(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("install", name=op.f("pk_install_marks")),
    )
    op.create_index(op.f("ix_install_marks_recorded_at"), "install_marks", ["recorded_at"])


def downgrade() -> None:
    op.drop_table("install_marks")
