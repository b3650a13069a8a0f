"""Which files are in which manifest: those of a week together, ordered by tenant.

A query of one tenant's days then opens few manifests, and a change of a few days replaces few. A
manifest is written once; a change puts the files that stay in it into a new one.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, Final

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, PrimitiveType, StringType
from pyiceberg.utils.datetime import date_to_days

from analytics.open_table.iceberg_entries import (
    ADDED,
    DELETED,
    EXISTING,
    Entry,
    encode_manifest,
    live_entries,
)
from analytics.open_table.iceberg_schema import PARTITIONS
from analytics.open_table.metadata_files import MetadataFiles

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

_Partition = tuple[str, int]
"""A tenant and a day, counted since 1970."""


@dataclass(frozen=True)
class NextManifests:
    """The manifests of the next snapshot, and the entries of the files that it removes."""

    manifests: list[ManifestFile]
    removed: list[Entry]


@dataclass(frozen=True)
class ManifestFolder:
    """The manifests in `folder`, of a table whose columns are `schema`."""

    folder: str
    files: MetadataFiles
    io: FileIO
    schema: Schema

    def entries(self, manifests: Sequence[ManifestFile]) -> Iterator[list[Entry]]:
        """The files that each of `manifests` has."""
        contents = self.files.get_all([manifest.manifest_path for manifest in manifests])
        for manifest, content in zip(manifests, contents, strict=True):
            yield live_entries(manifest, content, self.io)

    def change(
        self,
        current: Iterable[ManifestFile],
        snapshot_id: int,
        added: list[Entry],
        removed: set[str],
    ) -> NextManifests:
        """Write what the snapshot `snapshot_id` needs: `current` with `added`, without `removed`.

        `removed` are URIs. New manifests are durable when this returns.
        """
        kept = [
            manifest
            for manifest in current
            # One with deletions alone records what an earlier snapshot removed; it has no live
            # file.
            if manifest.has_added_files() or manifest.has_existing_files()
        ]
        deleted: list[Entry] = []
        groups: list[list[Entry]] = []
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
        changed = [_as_of(snapshot_id, group) for group in groups]
        changed += _chunks([_deleted(entry, snapshot_id) for entry in deleted], ENTRIES_MAX)
        return NextManifests(self._write(changed, snapshot_id) + kept, deleted)

    def _write(self, groups: Sequence[Sequence[Entry]], snapshot_id: int) -> list[ManifestFile]:
        commit = uuid.uuid4()
        contents = [
            (f"{self.folder}/{commit}-m{number}.avro", encode_manifest(group, self.schema))
            for number, group in enumerate(groups)
        ]
        self.files.write_new(contents)
        return [
            _manifest(uri, len(content), group, snapshot_id)
            for (uri, content), group in zip(contents, groups, strict=True)
        ]


def pack(entries: Iterable[Entry]) -> list[list[Entry]]:
    """`entries` in groups of at most ENTRIES_MAX: those of a week together, ordered by tenant.

    Weeks that have few share a group.
    """
    groups: list[list[Entry]] = []
    shared: list[Entry] = []
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


def _chunks(entries: list[Entry], size: int) -> list[list[Entry]]:
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def _to_merge(kept: list[ManifestFile], groups: list[list[Entry]]) -> set[ManifestFile]:
    """Those of `kept` to be written again with `groups`, because there are too many small ones."""
    weeks = {_week(entry.day) for group in groups for entry in group}
    crowd = [manifest for manifest in kept if not weeks.isdisjoint(_weeks(manifest))]
    files = sum(map(_files, crowd)) + sum(map(len, groups))
    if len(crowd) + len(groups) > files // ENTRIES_MAX + len(weeks) + WEEK_SLACK:
        return set(crowd)
    small = [manifest for manifest in kept if _files(manifest) < ENTRIES_MAX // 2]
    return set(small) if len(small) > TABLE_SLACK else set()


def _as_of(snapshot_id: int, entries: list[Entry]) -> list[Entry]:
    """`entries` as a manifest of that snapshot has them: what others added is existing."""
    return [
        entry
        if entry.status == ADDED and entry.snapshot_id == snapshot_id
        else entry._replace(status=EXISTING)
        for entry in entries
    ]


def _deleted(entry: Entry, snapshot_id: int) -> Entry:
    return entry._replace(status=DELETED, snapshot_id=snapshot_id)


def _manifest(uri: str, size: int, entries: Sequence[Entry], snapshot_id: int) -> ManifestFile:
    """What the list of manifests says of the one at `uri`."""

    def count(status: int) -> tuple[int, int]:
        rows = [entry.rows for entry in entries if entry.status == status]
        return len(rows), sum(rows)

    (added, added_rows), (existing, existing_rows) = count(ADDED), count(EXISTING)
    deleted, deleted_rows = count(DELETED)
    numbers = [
        entry.sequence_number
        for entry in entries
        if entry.sequence_number is not None and entry.status != DELETED
    ]
    return ManifestFile.from_args(
        manifest_path=uri,
        manifest_length=size,
        partition_spec_id=PARTITIONS.spec_id,
        content=ManifestContent.DATA,
        # Assigned with the list of manifests; entries without a number of their own inherit it.
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=min(numbers, default=UNASSIGNED_SEQ),
        added_snapshot_id=snapshot_id,
        added_files_count=added,
        existing_files_count=existing,
        deleted_files_count=deleted,
        added_rows_count=added_rows,
        existing_rows_count=existing_rows,
        deleted_rows_count=deleted_rows,
        partitions=[
            _summary(StringType(), [entry.tenant_id for entry in entries]),
            _summary(DateType(), [entry.day for entry in entries]),
        ],
        key_metadata=None,
    )


def _summary(kind: PrimitiveType, values: Sequence[str] | Sequence[int]) -> PartitionFieldSummary:
    return PartitionFieldSummary.from_args(
        contains_null=False,
        contains_nan=False,
        lower_bound=to_bytes(kind, min(values)),
        upper_bound=to_bytes(kind, max(values)),
    )


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
