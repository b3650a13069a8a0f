"""Install tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "install_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("binding_id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("sub", sa.String(), nullable=False),
        sa.Column("repository_id", sa.String(), nullable=True),
        sa.Column("event_name", sa.String(), nullable=True),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_install_tokens_tenant_id")
        ),
        sa.ForeignKeyConstraint(
            ["api_key_id"], ["api_keys.id"], name=op.f("fk_install_tokens_api_key_id")
        ),
        sa.ForeignKeyConstraint(
            ["binding_id"], ["bindings.id"], name=op.f("fk_install_tokens_binding_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_install_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_install_tokens_token_hash")),
    )
    op.create_index(
        "install_tokens_of_key", "install_tokens", ["api_key_id", "expires_at", "token_id"]
    )
    op.create_index(op.f("ix_install_tokens_expires_at"), "install_tokens", ["expires_at"])


def downgrade() -> None:
    op.drop_table("install_tokens")
