"""What each organisation's past installs were compared with."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    for name in ("matched_generation", "matched_revision"):
        op.add_column("organisations", sa.Column(name, sa.BigInteger(), nullable=True))
