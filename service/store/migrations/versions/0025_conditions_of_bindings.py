"""Conditions of bindings, and the claims of install tokens that they are compared with.

None of either is what there was before: a binding without conditions, a token without such claims.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("bindings", sa.Column("conditions", sa.JSON(), nullable=True))
    op.add_column("install_tokens", sa.Column("condition_claims", sa.JSON(), nullable=True))
