"""Sign-in through identity providers: identities, allowed domains, used sign-in steps."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("members", sa.Column("identity_namespace", sa.String(), nullable=True))
    op.add_column("members", sa.Column("identity_subject", sa.String(), nullable=True))
    op.create_index(
        "one_member_per_identity",
        "members",
        ["identity_provider", "identity_namespace", "identity_subject", "tenant_id"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "allowed_domains",
        sa.Column("identity_provider", sa.String(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_allowed_domains_tenant_id")
        ),
        sa.PrimaryKeyConstraint(
            "identity_provider", "domain", "tenant_id", name=op.f("pk_allowed_domains")
        ),
    )
    op.create_table(
        "spent_sign_ins",
        sa.Column("id_hash", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id_hash", name=op.f("pk_spent_sign_ins")),
    )
    op.create_index(
        op.f("ix_spent_sign_ins_expires_at"), "spent_sign_ins", ["expires_at"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_spent_sign_ins_expires_at"), table_name="spent_sign_ins")
    op.drop_table("spent_sign_ins")
    op.drop_table("allowed_domains")
    op.drop_index("one_member_per_identity", table_name="members")
    op.drop_column("members", "identity_subject")
    op.drop_column("members", "identity_namespace")
