"""Open tables over the segments (Delta Lake, Iceberg)."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.tables.base import Base


class LakeTable(Base):
    """An open table over the segments, as it was last published.

    `tenant_id` is empty for the operator's table, which has all organisations. `version` is its
    current one (see `analytics.open_table.table_format`), `complete_through_seq` what that says.
    """

    __tablename__ = "lake_tables"

    format: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    location: Mapped[str]
    version: Mapped[str]
    snapshot: Mapped[str | None]
    snapshots: Mapped[int]
    files: Mapped[int]
    rows: Mapped[int]
    complete_through_seq: Mapped[int]
    created_at: Mapped[datetime]
    published_at: Mapped[datetime]


class IcebergTable(Base):
    """The current metadata file of an Iceberg table, as Iceberg's SQL catalogs store it.

    Table and columns are those of pyiceberg's SqlCatalog and of Java's JdbcCatalog.
    """

    __tablename__ = "iceberg_tables"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    table_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    metadata_location: Mapped[str | None] = mapped_column(String(1000))
    previous_metadata_location: Mapped[str | None] = mapped_column(String(1000))
    iceberg_type: Mapped[str | None] = mapped_column(String(5))


class IcebergNamespaceProperty(Base):
    """A namespace of those catalogs."""

    __tablename__ = "iceberg_namespace_properties"

    catalog_name: Mapped[str] = mapped_column(String(255), primary_key=True)
    namespace: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    property_value: Mapped[str | None] = mapped_column(String(1000))
