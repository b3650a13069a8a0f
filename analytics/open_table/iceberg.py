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
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from analytics.open_table.iceberg_manifests import DataFileEntry, ManifestFolder, new_entry
from analytics.open_table.iceberg_schema import ICEBERG_SCHEMA, PARTITIONS, PROPERTIES
from analytics.open_table.metadata_files import MetadataFiles
from analytics.open_table.storage_faults import StorageFailed, reports_codes_only
from analytics.open_table.table_format import (
    COMPLETE_THROUGH,
    FormatName,
    SnapshotChange,
    TableFormat,
    TableHead,
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


class IcebergTable(TableFormat):
    """A version is the URI of a metadata file; the catalog says which one is current."""

    name = FormatName.ICEBERG

    def __init__(self, location: str, files: MetadataFiles) -> None:
        self.location = location
        self._files = files
        self._io: FileIO = load_file_io(dict(files.iceberg_properties), location)
        self._metadata = f"{location}/metadata"
        self._versions = f"{location}/versions"
        self._folders = (self._metadata, self._versions)

    @reports_codes_only
    def read(self, version: str | None) -> TableHead | None:
        """See `TableFormat`."""
        if version is None:
            return None
        return self._head(self._load(version))

    @reports_codes_only
    def write(self, head: TableHead | None, change: SnapshotChange) -> TableHead:
        """See `TableFormat`."""
        table = self._begin(change.at) if head is None else self._load(head.version, change.at)
        removed = {head.files[id_] for id_ in change.removed} if head else set()
        updates: list[TableUpdate] = []
        if table.schema().fields != ICEBERG_SCHEMA.fields:
            updates += [AddSchemaUpdate(schema=ICEBERG_SCHEMA), SetCurrentSchemaUpdate()]
        updates += self._snapshot(table.metadata, change, removed)
        table = self._commit(table, updates, change.at)
        return self._head(table, change.files_after(head))

    @reports_codes_only
    def named(self, head: TableHead, since: datetime) -> frozenset[str]:
        """See `TableFormat`; all snapshots that are not expired count."""
        metadata = self._load(head.version).metadata
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in metadata.snapshots
            for manifest in self._manifests(snapshot)
        }
        return frozenset(map(segment_id_of, self._uris(list(manifests.values()))))

    @reports_codes_only
    def expire(self, head: TableHead, before: datetime, at: datetime) -> TableHead | None:
        """See `TableFormat`."""
        table = self._load(head.version, at)
        old = _superseded(table.metadata, int(before.timestamp() * 1000))
        if not old:
            return None
        table.maintenance.expire_snapshots().by_ids(old).commit()
        self._files.sync([table.metadata_location])
        return self._head(table, head.files)

    @reports_codes_only
    def announce(self, head: TableHead) -> None:
        """See `TableFormat`."""
        number = _number(head.version)
        target = f"{self._metadata}/v{number}.metadata.json"
        hint = f"{self._metadata}/{_HINT}"
        if self._files.read(hint) != str(number).encode():
            self._files.write_atomically(target, self._files.get(head.version))
            # The hint last: readers that follow it find the file.
            self._files.write_atomically(hint, str(number).encode())

    @reports_codes_only
    def sweep(self, head: TableHead, before: datetime) -> int:
        """See `TableFormat`."""
        kept = {
            head.version,
            f"{self._metadata}/v{_number(head.version)}.metadata.json",
            f"{self._metadata}/{_HINT}",
        }
        for snapshot in self._load(head.version).metadata.snapshots:
            kept.add(snapshot.manifest_list)
            kept |= {manifest.manifest_path for manifest in self._manifests(snapshot)}
        # Younger files may be of a version that is being written, and that no catalog names yet.
        return sum(self._files.remove_old(folder, kept, before) for folder in self._folders)

    @reports_codes_only
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
        # Engines that list the folder take the highest number for the current version: a table that
        # is begun again must not stay behind the former one.
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
            # Something else than the object store may have answered.
            if PurePosixPath(version).name in self._files.names(self._versions):
                raise StorageFailed(f"{version} is there and cannot be read") from None
            raise TableMissing(version) from error
        except (ValidationError, UnicodeDecodeError) as error:
            raise StorageFailed(f"{version} is damaged") from error
        return self._table(metadata, version, at)

    def _table(self, metadata: TableMetadata, version: str, at: datetime | None) -> Table:
        catalog = NoopCatalog("published") if at is None else _StagingCatalog(at)
        return Table(("countersign", "audit"), metadata, version, self._io, catalog)

    def _head(self, table: Table, files: dict[str, str] | None = None) -> TableHead:
        metadata = table.metadata
        snapshot = metadata.current_snapshot()
        if files is None:
            manifests = self._manifests(snapshot) if snapshot else []
            files = {segment_id_of(uri): uri for uri in self._uris(manifests)}
        summary = snapshot.summary if snapshot else None
        return TableHead(
            version=table.metadata_location,
            snapshot=str(snapshot.snapshot_id) if snapshot else None,
            files=files,
            complete_through_seq=int((summary and summary.get(COMPLETE_THROUGH)) or 0),
            snapshots=len(metadata.snapshots),
        )

    def _snapshot(
        self, metadata: TableMetadata, change: SnapshotChange, removed: set[str]
    ) -> list[TableUpdate]:
        """The updates that make `change` the current snapshot; its files are written."""
        parent = metadata.current_snapshot()
        snapshot_id = metadata.new_snapshot_id()
        added = [new_entry(segment, uri, snapshot_id) for segment, uri in change.added]
        manifests, deleted = self._manifest_folder.change(
            self._manifests(parent) if parent else [], snapshot_id, added, removed
        )
        number = metadata.next_sequence_number()
        manifest_list = f"{self._metadata}/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=self._io.new_output(manifest_list),
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=number,
            avro_compression="deflate",
        ) as writer:
            writer.add_manifests(manifests)
        self._files.sync([manifest_list])
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": number,
                "manifest-list": manifest_list,
                "summary": _summary(change, added, deleted, parent),
                "schema-id": ICEBERG_SCHEMA.schema_id,
            }
        )
        current = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH}
        return [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate.model_validate({**current, "snapshot-id": snapshot_id}),
        ]

    @property
    def _manifest_folder(self) -> ManifestFolder:
        return ManifestFolder(self._metadata, self._files, self._io, ICEBERG_SCHEMA)

    def _commit(self, table: Table, updates: Sequence[TableUpdate], at: datetime) -> Table:
        """`table` with `updates` in a new metadata file, which is durable."""
        response = _StagingCatalog(at).commit_table(table, (), tuple(updates))
        self._files.sync([response.metadata_location])
        return self._table(response.metadata, response.metadata_location, at)

    def _manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        """The manifests of `snapshot`. Raises StorageFailed."""
        try:
            return list(snapshot.manifests(self._io))
        except OSError:
            raise
        except Exception as error:  # of any kind, since the bytes may be anything
            raise StorageFailed(
                f"{snapshot.manifest_list}: the manifest list is damaged"
            ) from error

    def _uris(self, manifests: Sequence[ManifestFile]) -> Iterator[str]:
        """The data files of `manifests`."""
        for entries in self._manifest_folder.entries(manifests):
            yield from (entry.uri for entry in entries)


def _metadata_location(location: str, number: int) -> str:
    return f"{location}/versions/{number:05d}-{uuid.uuid4()}.metadata.json"


def _number(location: str) -> int:
    return int(PurePosixPath(location).name.partition("-")[0])


def _summary(
    change: SnapshotChange,
    added: Sequence[DataFileEntry],
    removed: Sequence[DataFileEntry],
    parent: Snapshot | None,
) -> Summary:
    """The summary of a snapshot, in the terms of Iceberg's specification."""
    figures = {
        "added-data-files": len(added),
        "added-records": sum(entry.file.record_count for entry in added),
        "added-files-size": sum(entry.file.file_size_in_bytes for entry in added),
        "deleted-data-files": len(removed),
        "deleted-records": sum(entry.file.record_count for entry in removed),
        "removed-files-size": sum(entry.file.file_size_in_bytes for entry in removed),
        "changed-partition-count": len(
            {(entry.tenant_id, entry.day) for entry in (*added, *removed)}
        ),
    }
    return update_snapshot_summaries(
        Summary(
            Operation.OVERWRITE if removed else Operation.APPEND,
            **{name: str(figure) for name, figure in figures.items() if figure},
            **{COMPLETE_THROUGH: str(change.complete_through_seq)},
        ),
        parent.summary if parent else None,
    )


def _superseded(metadata: TableMetadata, before_ms: int) -> list[int]:
    """The ids of snapshots whose successor is older than `before_ms`."""
    snapshots = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    return [
        old.snapshot_id
        for old, successor in pairwise(snapshots)
        if successor.timestamp_ms < before_ms
    ]
