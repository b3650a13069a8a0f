"""Alert rules, and where they fired."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant_id", sa.String(), sa.ForeignKey("organisations.id"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "alert_rules",
        sa.Column("id", sa.String(), primary_key=True),
        _tenant(),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("definition", sa.String(), nullable=False),
        sa.Column("on_since", sa.BigInteger(), nullable=True),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("alert_rules_by_name", "alert_rules", ["tenant_id", "name"], unique=True)
    op.create_table(
        "alert_firings",
        sa.Column("id", sa.String(), primary_key=True),
        _tenant(),
        sa.Column("rule_id", sa.String(), nullable=False),
        sa.Column("rule_name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fired_at", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("usual", sa.BigInteger(), nullable=True),
        sa.Column("row_ids", sa.String(), nullable=False),
        sa.Column("query", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.Column("handled_by", sa.String(), nullable=True),
        sa.Column("handled_at", sa.BigInteger(), nullable=True),
    )
    op.create_index(
        "alert_firings_by_rule", "alert_firings", ["rule_id", "key", "fired_at"], unique=True
    )
    op.create_index("alert_firings_by_time", "alert_firings", ["tenant_id", "fired_at"])
