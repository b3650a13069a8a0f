"""Sign-ins of command lines, and the scopes of API keys that read."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "api_keys", sa.Column("scopes", sa.JSON(), nullable=False, server_default=sa.text("'[]'"))
    )
    op.create_table(
        "device_sign_ins",
        sa.Column("device_code_hash", sa.String(), nullable=False),
        sa.Column("user_code_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("interval_s", sa.BigInteger(), nullable=False),
        sa.Column("polled_at", sa.BigInteger(), nullable=True),
        sa.Column("source_ip", sa.String(), nullable=True),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_device_sign_ins_session_id")
        ),
        sa.PrimaryKeyConstraint("device_code_hash", name=op.f("pk_device_sign_ins")),
        sa.UniqueConstraint("user_code_hash", name=op.f("uq_device_sign_ins_user_code_hash")),
    )
    op.create_index(
        op.f("ix_device_sign_ins_expires_at"), "device_sign_ins", ["expires_at"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_device_sign_ins_expires_at"), table_name="device_sign_ins")
    op.drop_table("device_sign_ins")
    op.drop_column("api_keys", "scopes")
