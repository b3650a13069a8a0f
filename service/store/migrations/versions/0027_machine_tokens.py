"""Tokens of members' machines, to install with."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "machine_tokens",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("tenant_id", sa.String(), sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("member_id", sa.String(), sa.ForeignKey("members.id"), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False, unique=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
    )
    op.create_index("ix_machine_tokens_member_id", "machine_tokens", ["member_id"])
    op.create_index("ix_machine_tokens_expires_at", "machine_tokens", ["expires_at"])
