"""When the member of a session last proved who they are."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("authenticated_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("sessions", "authenticated_at")
