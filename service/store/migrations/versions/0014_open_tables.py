"""Open tables over the segments, and the tables of Iceberg's SQL catalogs."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lake_tables",
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("location", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=True),
        sa.Column("snapshots", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("complete_through_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("published_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("format", "tenant_id", name=op.f("pk_lake_tables")),
    )
    op.create_table(
        "iceberg_tables",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("table_namespace", sa.String(255), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("metadata_location", sa.String(1000), nullable=True),
        sa.Column("previous_metadata_location", sa.String(1000), nullable=True),
        sa.Column("iceberg_type", sa.String(5), nullable=True),
        sa.PrimaryKeyConstraint(
            "catalog_name", "table_namespace", "table_name", name=op.f("pk_iceberg_tables")
        ),
    )
    op.create_table(
        "iceberg_namespace_properties",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("property_key", sa.String(255), nullable=False),
        sa.Column("property_value", sa.String(1000), nullable=True),
        sa.PrimaryKeyConstraint(
            "catalog_name",
            "namespace",
            "property_key",
            name=op.f("pk_iceberg_namespace_properties"),
        ),
    )


def downgrade() -> None:
    for table in ("iceberg_namespace_properties", "iceberg_tables", "lake_tables"):
        op.drop_table(table)
