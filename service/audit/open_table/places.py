"""Where tables and the files in them are, as URIs, and the formats that are installed."""

from dataclasses import dataclass
from typing import Final

from analytics.open_table.metadata_files import (
    LocalMetadataFiles,
    MetadataFiles,
    S3MetadataFiles,
    file_uri,
)
from analytics.open_table.table_format import FormatName, TableFormat
from analytics.storage.segment_metadata import Segment
from service.core.errors import Refusal
from service.core.settings import Settings, how_to_install

ALL_TENANTS: Final = ""
"""In place of a tenant id: the operator's table, with the rows of all organisations."""


LAKE_EXTRA_MISSING: Final = Refusal.of(
    f"{{package}}, for {{format}} tables, is not installed: {how_to_install('lake')}", status=503
)


@dataclass(frozen=True, slots=True)
class TableKey:
    """A table: its format, and the tenant whose rows it has (ALL_TENANTS: the operator's)."""

    format: FormatName
    tenant_id: str = ALL_TENANTS

    @property
    def name(self) -> str:
        """The table's name in its catalog and folder."""
        return "audit" if self.tenant_id == ALL_TENANTS else f"audit_{self.tenant_id}"

    def has(self, tenant_id: str) -> bool:
        """True if the rows of the tenant belong in the table."""
        return self.tenant_id in {ALL_TENANTS, tenant_id}


@dataclass(frozen=True, slots=True)
class LakePlaces:
    """URIs of the segments' folder and of the folder of tables' metadata, and their storage."""

    audit: str
    lake: str
    files: MetadataFiles

    def uri(self, segment: Segment) -> str:
        """The file of `segment`, in the layout of `analytics.storage.layout`."""
        return (
            f"{self.audit}/tenant={segment.tenant_id}/day={segment.day.isoformat()}"
            f"/{segment.segment_id}.parquet"
        )

    def location(self, key: TableKey) -> str:
        """The folder of a table.

        That of a Delta table is the folder of its segments (see `analytics.open_table.delta`).
        """
        if key.format is FormatName.ICEBERG:
            return f"{self.lake}/iceberg/{key.name}"
        return (
            self.audit if key.tenant_id == ALL_TENANTS else f"{self.audit}/tenant={key.tenant_id}"
        )

    def table(self, key: TableKey) -> TableFormat:
        """The table of `key`, which need not exist. Raises LAKE_EXTRA_MISSING."""
        try:
            return self._table(key)
        except ModuleNotFoundError as error:
            package = "pyiceberg" if key.format is FormatName.ICEBERG else "deltalake"
            raise LAKE_EXTRA_MISSING(package=package, format=key.format.value) from error

    def _table(self, key: TableKey) -> TableFormat:
        # Imported where they are used: optional, and a second to load.
        if key.format is FormatName.ICEBERG:
            from analytics.open_table.iceberg import IcebergTable

            return IcebergTable(self.location(key), self.files)
        from analytics.open_table.delta import DeltaLakeTable

        return DeltaLakeTable(self.location(key), self.files)


def s3_places(url: str, endpoint: str, wait_s: float) -> LakePlaces:
    """The places in the bucket of `url` (s3://bucket/prefix); keys are laid out like paths."""
    root = url.rstrip("/")
    files = S3MetadataFiles(endpoint, wait_s)
    return LakePlaces(audit=root, lake=f"{root}/_countersign/lake", files=files)


def lake_places(settings: Settings) -> LakePlaces:
    """The places in the bucket of the segments, or in the data dir."""
    if settings.segments_url:
        return s3_places(
            settings.segments_url, settings.segments_endpoint, settings.segments_wait_s
        )
    return LakePlaces(
        audit=file_uri(settings.audit_dir),
        lake=file_uri(settings.lake_dir),
        files=LocalMetadataFiles(settings.data_dir),
    )
