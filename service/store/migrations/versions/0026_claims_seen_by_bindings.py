"""The claims of the tokens that each binding admits, from now on: for advice on the binding."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("bindings", sa.Column("seen_since", sa.BigInteger(), nullable=True))
    op.add_column("bindings", sa.Column("seen_claims", sa.JSON(), nullable=True))
