"""The verifier: the trust revision of organisations, and rejected subjects."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "organisations",
        sa.Column("trust_revision", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.create_table(
        "rejected_subjects",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("is_verified", sa.Boolean(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("sub", sa.String(), nullable=True),
        sa.Column("repository_id", sa.String(), nullable=True),
        sa.Column("event_name", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("last_request_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_rejected_subjects_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "digest", name=op.f("pk_rejected_subjects")),
    )
    op.create_index(
        "rejected_lately",
        "rejected_subjects",
        ["tenant_id", "is_verified", "last_at"],
        unique=False,
    )


def downgrade() -> None:
    op.drop_index("rejected_lately", table_name="rejected_subjects")
    op.drop_table("rejected_subjects")
    op.drop_column("organisations", "trust_revision")
