"""Install policies of organisations, and the operator's blocklist."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "policy_revisions",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_policy_revisions_tenant_id")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "revision", name=op.f("pk_policy_revisions")),
    )
    op.create_table(
        "policy_exceptions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decided_reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["organisations.id"], name=op.f("fk_policy_exceptions_tenant_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_exceptions")),
    )
    op.create_index(
        "policy_exceptions_newest_first",
        "policy_exceptions",
        ["tenant_id", "state", "requested_at", "id"],
    )
    op.create_table(
        "blocklist_imports",
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("ids", sa.JSON(), nullable=False),
        sa.Column("imported_by", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("progress_at", sa.BigInteger(), nullable=False),
        sa.Column("switched_at", sa.BigInteger(), nullable=True),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("advisories", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger(), nullable=False),
        sa.Column("unreadable", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("generation", name=op.f("pk_blocklist_imports")),
    )
    op.create_table(
        "advisories",
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ecosystem", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("advisory_id", sa.String(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["generation"],
            ["blocklist_imports.generation"],
            name=op.f("fk_advisories_generation"),
        ),
        sa.PrimaryKeyConstraint(
            "generation", "ecosystem", "package", "advisory_id", name=op.f("pk_advisories")
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("advisories")
    op.drop_table("blocklist_imports")
    op.drop_table("policy_exceptions")
    op.drop_table("policy_revisions")
