"""Evidence: trees of rows, checkpoints, and the keys that sign them."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant_id", sa.String(), sa.ForeignKey("organisations.id"), primary_key=True)


def upgrade() -> None:
    op.create_table(
        "evidence_trees",
        _tenant(),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.Column("min_index", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.String(), nullable=True),
        sa.Column("monitored_at", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "evidence_tiles",
        _tenant(),
        sa.Column("level", sa.BigInteger(), primary_key=True),
        sa.Column("number", sa.BigInteger(), primary_key=True),
        sa.Column("first_seq", sa.BigInteger(), nullable=True),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.Column("first_seqs", sa.LargeBinary(), nullable=True),
        sa.Column("pruned", sa.LargeBinary(), nullable=True),
    )
    op.create_index("evidence_tiles_by_seq", "evidence_tiles", ["tenant_id", "first_seq"])
    op.create_table(
        "evidence_checkpoints",
        _tenant(),
        sa.Column("generation", sa.BigInteger(), primary_key=True),
        sa.Column("size", sa.BigInteger(), primary_key=True),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("signed_at", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("signatures", sa.String(), nullable=False),
        sa.Column("stored_at", sa.BigInteger(), nullable=True),
    )
    op.create_index(
        "evidence_checkpoints_to_store",
        "evidence_checkpoints",
        ["tenant_id"],
        sqlite_where=sa.text("stored_at IS NULL"),
        postgresql_where=sa.text("stored_at IS NULL"),
    )
    op.create_table(
        "evidence_day_keys",
        _tenant(),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("key", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "evidence_pruned_leaves",
        _tenant(),
        sa.Column("group_number", sa.BigInteger(), primary_key=True),
        sa.Column("leaves", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "evidence_keys",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("public", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("retired_at", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "evidence_witnesses",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("vkey", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
