"""Finds the active bindings of an organisation without reading the revoked ones."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_ACTIVE = sa.text("revoked_at IS NULL")


def upgrade() -> None:
    op.create_index(
        "active_by_tenant",
        "bindings",
        ["tenant_id"],
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    )


def downgrade() -> None:
    op.drop_index("active_by_tenant", "bindings")
