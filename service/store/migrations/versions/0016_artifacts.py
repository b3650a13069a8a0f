"""Digests of the files that the install proxy has served."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("registry_url", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("published_at", sa.BigInteger(), nullable=True),
        sa.Column("served_at", sa.BigInteger(), nullable=False),
        sa.Column("offered_digest", sa.String(), nullable=True),
        sa.Column("offered_at", sa.BigInteger(), nullable=True),
        sa.Column("accepted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "ecosystem", "registry_url", "package", "file_name", name=op.f("pk_artifacts")
        ),
    )
    op.create_index(op.f("ix_artifacts_served_at"), "artifacts", ["served_at"])
    op.create_index(op.f("ix_artifacts_offered_at"), "artifacts", ["offered_at"])
    op.create_index(op.f("ix_artifacts_accepted_at"), "artifacts", ["accepted_at"])


def downgrade() -> None:
    op.drop_table("artifacts")
