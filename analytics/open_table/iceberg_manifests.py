"""Which files are in which manifest: those of a week together, ordered by tenant.

A query of one tenant's days then opens few manifests, and a change of a few days replaces few. A
manifest is written once; a change puts the files that stay in it into a new one.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    write_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, PrimitiveType, StringType, TimestamptzType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from analytics.model.schema import COLUMNS
from analytics.open_table.iceberg_schema import PARTITIONS
from analytics.open_table.metadata_files import PARALLEL_MAX, MetadataFiles, in_parallel
from analytics.open_table.storage_faults import StorageFailed
from analytics.storage.segment_metadata import Segment

ENTRIES_MAX: Final = 500
"""Files in a manifest: a reader decodes it as a whole, in some ten milliseconds."""

WEEK_SLACK: Final = 8
"""How many manifests more than its files fill a week may have before they are merged."""

TABLE_SLACK: Final = 64
"""How many manifests less than half full a table may have before they are merged."""

_DAYS: Final = 7
_TENANT: Final = 0
_DAY: Final = 1
"""The places in a partition."""

_FORMAT_VERSION: Final = 2
_IDS: Final = {column.name: column.field_id for column in COLUMNS}
_SEQ: Final = _IDS["seq"]
_CREATED_AT: Final = _IDS["created_at"]

_Partition = tuple[str, int]
"""A tenant and a day, counted since 1970."""


class DataFileEntry(NamedTuple):
    """A data file in a manifest, and the snapshot that added it."""

    file: DataFile
    snapshot_id: int
    sequence_number: int | None = None
    file_sequence_number: int | None = None
    """The numbers are None in an entry that is written by the snapshot that adds it."""
    is_deleted: bool = False

    @property
    def uri(self) -> str:
        """Where the file is."""
        return str(self.file.file_path)

    @property
    def tenant_id(self) -> str:
        """The tenant whose rows it has."""
        return self.file.partition[_TENANT] or ""

    @property
    def day(self) -> int:
        """The day of its rows, counted since 1970."""
        return int(self.file.partition[_DAY])


def new_entry(segment: Segment, uri: str, snapshot_id: int) -> DataFileEntry:
    """The entry that adds the file of `segment` at `uri`, from what the catalog knows.

    Its partition is the tenant and the day. Bounds are those of `seq` and `created_at`, which the
    catalog has; the file has statistics of these, of `event` and of `decision`.
    """
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(segment.tenant_id, date_to_days(segment.day)),
        record_count=segment.rows,
        file_size_in_bytes=segment.size,
        value_counts={_SEQ: segment.rows, _CREATED_AT: segment.rows},
        null_value_counts={_SEQ: 0, _CREATED_AT: 0},
        lower_bounds=_bounds(segment.min_seq, segment.min_created_at),
        upper_bounds=_bounds(segment.max_seq, segment.max_created_at),
    )
    return DataFileEntry(file, snapshot_id)


def _bounds(seq: int, created_at: datetime) -> dict[int, bytes]:
    return {
        _SEQ: to_bytes(LongType(), seq),
        _CREATED_AT: to_bytes(TimestamptzType(), datetime_to_micros(created_at)),
    }


@dataclass(frozen=True)
class ManifestFolder:
    """The manifests in `folder`, of a table whose columns are `schema`."""

    folder: str
    files: MetadataFiles
    io: FileIO
    schema: Schema

    def entries(self, manifests: Sequence[ManifestFile]) -> Iterator[list[DataFileEntry]]:
        """The files that each of `manifests` has."""
        for start in range(0, len(manifests), PARALLEL_MAX):
            yield from in_parallel(self._read, manifests[start : start + PARALLEL_MAX])

    def change(
        self,
        current: Iterable[ManifestFile],
        snapshot_id: int,
        added: list[DataFileEntry],
        removed: set[str],
    ) -> tuple[list[ManifestFile], list[DataFileEntry]]:
        """Write what the snapshot `snapshot_id` needs: `current` with `added`, without `removed`.

        Returns its manifests, and the entries of the files that it removes. `removed` are URIs. New
        manifests are durable when this returns.
        """
        kept = [
            manifest
            for manifest in current
            # One with deletions alone records what an earlier snapshot removed; it has no live
            # file.
            if manifest.has_added_files() or manifest.has_existing_files()
        ]
        deleted: list[DataFileEntry] = []
        groups: list[list[DataFileEntry]] = []
        touched = [
            manifest for manifest in kept if _may_have(manifest, set(map(partition_of, removed)))
        ]
        for manifest, entries in zip(touched, self.entries(touched), strict=True):
            gone = [entry for entry in entries if entry.uri in removed]
            if gone:
                kept.remove(manifest)
                deleted += gone
                groups += pack(entry for entry in entries if entry.uri not in removed)
        groups += pack(added)
        merged = _to_merge(kept, groups)
        if merged:
            kept = [manifest for manifest in kept if manifest not in merged]
            loose = [entry for group in groups for entry in group]
            for entries in self.entries(list(merged)):
                loose += entries
            groups = pack(loose)
        groups += _chunks([entry._replace(is_deleted=True) for entry in deleted], ENTRIES_MAX)
        return self._write(groups, snapshot_id) + kept, deleted

    def _read(self, manifest: ManifestFile) -> list[DataFileEntry]:
        """The entries of `manifest` but those that it deletes. Raises StorageFailed."""
        try:
            entries = manifest.fetch_manifest_entry(self.io)
        except OSError:
            raise
        except Exception as error:  # of any kind, since the bytes may be anything
            raise StorageFailed(f"{manifest.manifest_path}: the manifest is damaged") from error
        return [
            DataFileEntry(
                entry.data_file,
                entry.snapshot_id or 0,
                entry.sequence_number,
                entry.file_sequence_number,
            )
            for entry in entries
        ]

    def _write(
        self, groups: Sequence[Sequence[DataFileEntry]], snapshot_id: int
    ) -> list[ManifestFile]:
        commit = uuid.uuid4()
        written = in_parallel(
            lambda numbered: self._write_one(
                f"{self.folder}/{commit}-m{numbered[0]}.avro", numbered[1], snapshot_id
            ),
            enumerate(groups),
        )
        self.files.sync(manifest.manifest_path for manifest in written)
        return written

    def _write_one(
        self, uri: str, entries: Sequence[DataFileEntry], snapshot_id: int
    ) -> ManifestFile:
        output = self.io.new_output(uri)
        with write_manifest(
            _FORMAT_VERSION, PARTITIONS, self.schema, output, snapshot_id, "deflate"
        ) as writer:
            for entry in entries:
                writer.add_entry(_written(entry, snapshot_id))
        return writer.to_manifest_file()


def _written(entry: DataFileEntry, snapshot_id: int) -> ManifestEntry:
    """`entry` as a manifest of that snapshot has it: what others added is existing."""
    is_new = entry.sequence_number is None and entry.snapshot_id == snapshot_id
    status = ManifestEntryStatus.ADDED if is_new else ManifestEntryStatus.EXISTING
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if entry.is_deleted else status,
        snapshot_id=snapshot_id if entry.is_deleted else entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.file,
    )


def pack(entries: Iterable[DataFileEntry]) -> list[list[DataFileEntry]]:
    """`entries` in groups of at most ENTRIES_MAX: those of a week together, ordered by tenant.

    Weeks that have few share a group.
    """
    groups: list[list[DataFileEntry]] = []
    shared: list[DataFileEntry] = []
    ordered = sorted(entries, key=lambda entry: (_week(entry.day), entry.tenant_id, entry.day))
    for _, week in groupby(ordered, key=lambda entry: _week(entry.day)):
        found = list(week)
        if shared and len(shared) + len(found) > ENTRIES_MAX:
            groups.append(shared)
            shared = []
        if len(found) > ENTRIES_MAX // 2:
            groups += _chunks(found, ENTRIES_MAX)
        else:
            shared += found
    return [*groups, shared] if shared else groups


def _chunks(entries: list[DataFileEntry], size: int) -> list[list[DataFileEntry]]:
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def _to_merge(kept: list[ManifestFile], groups: list[list[DataFileEntry]]) -> set[ManifestFile]:
    """Those of `kept` to be written again with `groups`, because there are too many small ones."""
    weeks = {_week(entry.day) for group in groups for entry in group}
    crowd = [manifest for manifest in kept if not weeks.isdisjoint(_weeks(manifest))]
    files = sum(map(_files, crowd)) + sum(map(len, groups))
    if len(crowd) + len(groups) > files // ENTRIES_MAX + len(weeks) + WEEK_SLACK:
        return set(crowd)
    small = [manifest for manifest in kept if _files(manifest) < ENTRIES_MAX // 2]
    return set(small) if len(small) > TABLE_SLACK else set()


def partition_of(uri: str) -> _Partition:
    """The tenant and the day of the segment whose file is at `uri`."""
    *_, tenant, day, _ = PurePosixPath(uri).parts
    return tenant.removeprefix("tenant="), date_to_days(
        date.fromisoformat(day.removeprefix("day="))
    )


def _may_have(manifest: ManifestFile, partitions: set[_Partition]) -> bool:
    """False if no entry of `manifest` is of any of `partitions`."""
    if not manifest.partitions:
        # Nothing is known of its partitions, so it has to be read.
        return True
    tenants = _range(StringType(), manifest.partitions[_TENANT])
    days = _range(DateType(), manifest.partitions[_DAY])
    if tenants is None or days is None:
        return True
    return any(
        tenants[0] <= tenant <= tenants[1] and days[0] <= day <= days[1]
        for tenant, day in partitions
    )


def _range(kind: PrimitiveType, summary: PartitionFieldSummary) -> tuple[Any, Any] | None:
    if summary.lower_bound is None or summary.upper_bound is None:
        return None
    return from_bytes(kind, summary.lower_bound), from_bytes(kind, summary.upper_bound)


def _weeks(manifest: ManifestFile) -> range:
    """The weeks that `manifest` has files of, and those between."""
    days = _range(DateType(), manifest.partitions[_DAY]) if manifest.partitions else None
    return range(_week(days[0]), _week(days[1]) + 1) if days else range(0)


def _week(day: int) -> int:
    return day // _DAYS


def _files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
