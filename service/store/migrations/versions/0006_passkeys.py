"""Passkeys, and the address and browser of each session."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("members", sa.Column("user_handle", sa.String(), nullable=True))
    op.add_column("sessions", sa.Column("source_ip", sa.String(), nullable=True))
    op.add_column("sessions", sa.Column("user_agent", sa.String(), nullable=True))
    op.create_table(
        "passkeys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("transports", sa.JSON(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("use_count", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name=op.f("fk_passkeys_member_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
    )
    op.create_index(op.f("ix_passkeys_member_id"), "passkeys", ["member_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_passkeys_member_id"), table_name="passkeys")
    op.drop_table("passkeys")
    op.drop_column("sessions", "user_agent")
    op.drop_column("sessions", "source_ip")
    op.drop_column("members", "user_handle")
