"""An Iceberg table (format version 2) whose catalog is elsewhere.

Everything here only writes new files. The table changes when the catalog names the new metadata in
place of the one that it was made from. Below the table's folder lie

- `versions/`: metadata files as they are written, some of them never committed;
- `metadata/`: manifests, and committed metadata once more as `v<number>.metadata.json` with
  `version-hint.text`, for engines that are given the folder instead of the catalog. They list it
  or read the hint, and so never meet a version that was not committed.
"""

import re
import uuid
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from analytics.open_table.iceberg_files import data_file, days_of
from analytics.open_table.iceberg_manifests import may_have_days, producer
from analytics.open_table.iceberg_schema import ICEBERG_SCHEMA, PARTITIONS, PROPERTIES
from analytics.open_table.metadata_files import MetadataFiles
from analytics.open_table.table_format import (
    COMPLETE_THROUGH,
    Change,
    FormatName,
    Head,
    TableMissing,
    segment_id_of,
)

_HINT: Final = "version-hint.text"
_COMMITTED: Final = re.compile(r"v(\d+)\.metadata\.json")


class _StagingCatalog(NoopCatalog):
    """Writes the metadata file of a commit at the time `at`, which no catalog names yet."""

    def __init__(self, at: datetime) -> None:
        super().__init__("staging")
        self._at_ms = int(at.timestamp() * 1000)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """`table` with `updates` in a new metadata file."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        # The publisher's clock may have been set back, and a table's history may not.
        at_ms = max(self._at_ms, table.metadata.last_updated_ms)
        metadata = update_table_metadata(
            table.metadata,
            tuple(_dated(update, at_ms) for update in updates),
            metadata_location=table.metadata_location,
        ).model_copy(update={"last_updated_ms": at_ms})
        location = _metadata_location(metadata.location, _number(table.metadata_location) + 1)
        ToOutputFile.table_metadata(metadata, table.io.new_output(location))
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": location}
        )


def _dated(update: TableUpdate, at_ms: int) -> TableUpdate:
    """`update`; a snapshot in it is of the time `at_ms`."""
    if not isinstance(update, AddSnapshotUpdate):
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": at_ms}))


class IcebergTable:
    """See `TableFormat`. A version is the URI of a metadata file."""

    name = FormatName.ICEBERG

    def __init__(self, location: str, files: MetadataFiles) -> None:
        self.location = location
        self._files = files
        self._io: FileIO = load_file_io(dict(files.iceberg_properties), location)
        self._metadata = f"{location}/metadata"
        self._folders = (self._metadata, f"{location}/versions")

    def read(self, version: str | None) -> Head | None:
        """See `TableFormat`."""
        if version is None:
            return None
        return self._head(self._load(version))

    def write(self, head: Head | None, change: Change) -> Head:
        """See `TableFormat`."""
        table = self._begin(change.at) if head is None else self._load(head.version, change.at)
        removed = {head.files[id_] for id_ in change.removed} if head else set()
        old = self._entries(table.metadata, removed)
        with table.transaction() as transaction:
            if table.schema().fields != ICEBERG_SCHEMA.fields:
                transaction._apply(
                    (AddSchemaUpdate(schema=ICEBERG_SCHEMA), SetCurrentSchemaUpdate())
                )
            summary = {COMPLETE_THROUGH: str(change.complete_through_seq)}
            with producer(transaction, summary, is_append=not old) as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                for segment, uri in change.added:
                    snapshot.append_data_file(data_file(segment, uri))
        self._make_durable(table)
        files = dict(head.files) if head else {}
        for segment_id in change.removed:
            files.pop(segment_id, None)
        files |= {segment.segment_id: uri for segment, uri in change.added}
        return self._head(table, files)

    def named(self, head: Head, since: datetime) -> frozenset[str]:
        """See `TableFormat`; all snapshots that are not expired count."""
        metadata = self._load(head.version).metadata
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in metadata.snapshots
            for manifest in self._manifests(snapshot)
        }
        return frozenset(
            segment_id_of(file.file_path)
            for manifest in manifests.values()
            for file in self._data_files(manifest)
        )

    def expire(self, head: Head, before: datetime, at: datetime) -> Head | None:
        """See `TableFormat`."""
        table = self._load(head.version, at)
        old = _superseded(table.metadata, int(before.timestamp() * 1000))
        if not old:
            return None
        table.maintenance.expire_snapshots().by_ids(old).commit()
        self._make_durable(table)
        return self._head(table, head.files)

    def announce(self, head: Head) -> None:
        """See `TableFormat`."""
        number = _number(head.version)
        target = f"{self._metadata}/v{number}.metadata.json"
        hint = f"{self._metadata}/{_HINT}"
        if self._files.read(hint) != str(number).encode():
            self._files.write_atomically(target, self._files.get(head.version))
            self._files.write_atomically(hint, str(number).encode())

    def sweep(self, head: Head, before: datetime) -> int:
        """See `TableFormat`."""
        kept = {
            head.version,
            f"{self._metadata}/v{_number(head.version)}.metadata.json",
            f"{self._metadata}/{_HINT}",
        }
        for snapshot in self._load(head.version).metadata.snapshots:
            kept.add(snapshot.manifest_list)
            kept |= {manifest.manifest_path for manifest in self._manifests(snapshot)}
        return sum(self._files.remove_old(folder, kept, before) for folder in self._folders)

    def remove(self) -> None:
        """See `TableFormat`."""
        for folder in self._folders:
            self._files.remove_folder(folder)

    def _begin(self, at: datetime) -> Table:
        metadata = TableMetadataV2.model_validate(
            {
                "location": self.location,
                "table-uuid": uuid.uuid4(),
                "last-updated-ms": int(at.timestamp() * 1000),
                "last-column-id": ICEBERG_SCHEMA.highest_field_id,
                "schemas": [ICEBERG_SCHEMA],
                "current-schema-id": ICEBERG_SCHEMA.schema_id,
                "partition-specs": [PARTITIONS],
                "default-spec-id": PARTITIONS.spec_id,
                "last-partition-id": PARTITIONS.last_assigned_field_id,
                "sort-orders": [UNSORTED_SORT_ORDER],
                "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
                "properties": PROPERTIES,
            }
        )
        for folder in self._folders:
            self._files.make_folder(folder)
        location = _metadata_location(self.location, self._last_number() + 1)
        ToOutputFile.table_metadata(metadata, self._io.new_output(location))
        self._files.sync([location])
        return self._table(metadata, location, at)

    def _last_number(self) -> int:
        """The highest of a former table in this folder; 0 if there was none."""
        names = map(_COMMITTED.fullmatch, self._files.names(self._metadata))
        return max((int(name[1]) for name in names if name), default=0)

    def _load(self, version: str, at: datetime | None = None) -> Table:
        try:
            metadata = FromInputFile.table_metadata(self._io.new_input(version))
        except FileNotFoundError as error:
            raise TableMissing(version) from error
        return self._table(metadata, version, at)

    def _table(self, metadata: TableMetadata, version: str, at: datetime | None) -> Table:
        catalog = NoopCatalog("published") if at is None else _StagingCatalog(at)
        return Table(("countersign", "audit"), metadata, version, self._io, catalog)

    def _head(self, table: Table, files: dict[str, str] | None = None) -> Head:
        metadata = table.metadata
        snapshot = metadata.current_snapshot()
        if files is None:
            files = {
                segment_id_of(file.file_path): file.file_path
                for manifest in (self._manifests(snapshot) if snapshot else [])
                for file in self._data_files(manifest)
            }
        summary = snapshot.summary if snapshot else None
        return Head(
            version=table.metadata_location,
            snapshot=str(snapshot.snapshot_id) if snapshot else None,
            files=files,
            complete_through_seq=int((summary and summary.get(COMPLETE_THROUGH)) or 0),
            snapshots=len(metadata.snapshots),
        )

    def _entries(self, metadata: TableMetadata, uris: set[str]) -> list[DataFile]:
        """The data files at `uris` as the current snapshot has them."""
        snapshot = metadata.current_snapshot()
        days = {days_of(uri) for uri in uris}
        found = [
            file
            for manifest in (self._manifests(snapshot) if snapshot else [])
            if may_have_days(manifest, days)
            for file in self._data_files(manifest)
            if file.file_path in uris
        ]
        for file in found:
            file.spec_id = PARTITIONS.spec_id  # a manifest's entries do not say
        return found

    def _manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        return list(snapshot.manifests(self._io))

    def _data_files(self, manifest: ManifestFile) -> Iterator[DataFile]:
        for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
            yield entry.data_file

    def _make_durable(self, table: Table) -> None:
        """Sync what the last commit wrote, before a catalog names it."""
        written = [table.metadata_location]
        snapshot = table.current_snapshot()
        if snapshot is not None:
            written.append(snapshot.manifest_list)
            written += [
                manifest.manifest_path
                for manifest in self._manifests(snapshot)
                if manifest.added_snapshot_id == snapshot.snapshot_id
            ]
        self._files.sync(written)


def _metadata_location(location: str, number: int) -> str:
    return f"{location}/versions/{number:05d}-{uuid.uuid4()}.metadata.json"


def _number(location: str) -> int:
    return int(PurePosixPath(location).name.partition("-")[0])


def _superseded(metadata: TableMetadata, before_ms: int) -> list[int]:
    """The ids of snapshots whose successor is older than `before_ms`."""
    snapshots = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    return [
        old.snapshot_id
        for old, successor in pairwise(snapshots)
        if successor.timestamp_ms < before_ms
    ]
