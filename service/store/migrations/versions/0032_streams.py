"""Streams of rows to other systems."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"

_TEXTS = ("name", "kind", "url", "query", "secret", "state", "created_by")
_NUMBERS = ("revision", "cursor", "reconciled_seq", "reconciled_at", "parked", "created_at")
_OPTIONAL = ("rotated_at", "cursor_at", "answered_at", "denied_since")


def upgrade() -> None:
    op.create_table(
        "streams",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("tenant_id", sa.String(), sa.ForeignKey("organisations.id"), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in _TEXTS),
        *(sa.Column(name, sa.String(), nullable=True) for name in ("former_secret", "answer")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _NUMBERS),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in _OPTIONAL),
        sa.Column("parked_since", sa.JSON(), nullable=False),
    )
    op.create_index("ix_streams_tenant_id", "streams", ["tenant_id"])
