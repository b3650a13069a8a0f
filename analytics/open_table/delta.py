"""A Delta table over the audit folder (or one tenant's folder of it), where its log lies.

Its root is the folder of the segments, because delta-rs reads no file outside a table's root. A
commit is a new file in the log, which can only be written if no other commit has that number.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from analytics.model.schema import COLUMNS
from analytics.open_table.metadata_files import MetadataFiles
from analytics.open_table.storage_faults import StorageFailed, reports_codes_only
from analytics.open_table.table_format import (
    COMPLETE_THROUGH,
    SUMMARY_PREFIX,
    TENANT_COLUMN,
    FormatName,
    SnapshotChange,
    TableFormat,
    TableHead,
    TableMissing,
    TableOvertaken,
    segment_id_of,
)
from analytics.storage.audit_files import TABLE_LOG
from analytics.storage.segment_metadata import Segment

PUBLISHED_AT: Final = f"{SUMMARY_PREFIX}published_at_ms"
_APP: Final = "countersign"
_DAY_COLUMN: Final = "day"
_PARTITIONS: Final = [TENANT_COLUMN, _DAY_COLUMN]
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_NUMBERED: Final = re.compile(r"(\d{20})\..*")
_LAST_CHECKPOINT: Final = "_last_checkpoint"

ARROW_SCHEMA: Final = pa.schema(
    [
        *(pa.field(column.name, column.type, nullable=True) for column in COLUMNS),
        pa.field(TENANT_COLUMN, pa.string()),
        pa.field(_DAY_COLUMN, pa.date32()),
    ]
)
"""The columns of files and, from the log, those of their folders."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a file of the log says. `at_ms` is None if the publisher did not write it."""

    version: int
    at_ms: int | None
    complete_through_seq: int | None
    removed: frozenset[str]


class DeltaLakeTable(TableFormat):
    """A version is a number of the log, which all readers read, and of which all is used."""

    name = FormatName.DELTA
    library_errors = (DeltaError,)

    def __init__(self, location: str, files: MetadataFiles) -> None:
        self.location = location
        self._files = files
        self._options = dict(files.delta_options) or None
        self._log = f"{location}/{TABLE_LOG}"

    @reports_codes_only
    def read(self, version: str | None) -> TableHead | None:
        """See `TableFormat`; the log itself says which version is current."""
        with self._faults():
            try:
                return self._head(self._open())
            except TableNotFoundError as error:
                # delta-rs also raises this if the answer was not the object store's.
                if any(map(_NUMBERED.fullmatch, self._files.names(self._log))):
                    raise StorageFailed(
                        f"{self._log}: the log is there and cannot be read"
                    ) from None
                if version is None:
                    return None
                raise TableMissing(self._log) from error

    @reports_codes_only
    def write(self, head: TableHead | None, change: SnapshotChange) -> TableHead:
        """See `TableFormat`."""
        with self._faults():
            # At the version that `change` was computed from: any commit since is a conflict.
            table = self._begin(change.at) if head is None else self._open(head.version)
            self._add_missing_columns(table, change.at)
            version = table.version()
            table.create_write_transaction(
                self._actions(head, change),
                mode="append",
                schema=Schema.from_arrow(ARROW_SCHEMA),
                partition_by=_PARTITIONS,
                commit_properties=_properties(
                    change.at,
                    {COMPLETE_THROUGH: str(change.complete_through_seq)},
                    # Another commit in the name of this one is a conflict, also for appends.
                    app_transactions=[Transaction(_APP, version + 1)],
                ),
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=False
                ),
            )
            # Durable before the database names the version: it would not be found after power loss.
            self._files.sync([self._commit_file(version + 1)])
            files = change.files_after(head)
            return self._head_of(version + 1, files, change.complete_through_seq)

    @reports_codes_only
    def is_current(self, head: TableHead) -> bool:
        """See `TableFormat`: a log has no gaps."""
        names = self._files.names(self._log)
        last, next_one = (
            self._commit_file(int(head.version) + more).rpartition("/")[2] for more in (0, 1)
        )
        return last in names and next_one not in names

    @reports_codes_only
    def named(self, head: TableHead, since: datetime) -> frozenset[str]:
        """See `TableFormat`."""
        since_ms = _ms(since)
        removed = [
            commit.removed
            for commit in self._commits()
            if commit.at_ms is None or commit.at_ms >= since_ms
        ]
        # What a commit removed was in the snapshot before it, which was current until that commit.
        return frozenset(head.files).union(*removed)

    @reports_codes_only
    def expire(self, head: TableHead, before: datetime, at: datetime) -> TableHead | None:
        """See `TableFormat`: the log begins with a checkpoint of the oldest version that is left.

        Versions that the publisher did not commit are kept.
        """
        commits = sorted(self._commits(), key=lambda commit: commit.version)
        oldest = 0
        for old, successor in pairwise(commits):
            if successor.at_ms is None or successor.at_ms >= _ms(before):
                break
            oldest = old.version + 1
        if not oldest:
            return None
        self._remove_unnamed_checkpoint(oldest)
        with self._faults():
            self._open(str(oldest)).create_checkpoint()
        # Durable before the commits that it stands for are removed: else a power loss would leave a
        # log without its beginning.
        self._files.sync([f"{self._log}/{name}" for name in self._checkpoint_files(oldest)])
        # Oldest first: what a crash leaves is still a log without gaps.
        for name in sorted(self._files.names(self._log)):
            match = _NUMBERED.fullmatch(name)
            if match and int(match[1]) < oldest:
                self._files.delete(f"{self._log}/{name}")
        with self._faults():
            return self._head(self._open())

    def _checkpoint_files(self, version: int) -> list[str]:
        """The names of the checkpoint of `version`, and of the file that points to it."""
        names = self._files.names(self._log)
        parts = [name for name in names if name.startswith(f"{version:020}.checkpoint.")]
        return [*parts, _LAST_CHECKPOINT]

    def _remove_unnamed_checkpoint(self, version: int) -> None:
        """Remove the checkpoint of an expiry that was cut off before it wrote the pointer to it.

        delta-rs would write neither again. No commit was removed yet for the checkpoint's sake.
        """
        pointer = self._files.read(f"{self._log}/{_LAST_CHECKPOINT}")
        if _version_in(pointer) != version:
            for name in self._checkpoint_files(version)[:-1]:
                self._files.delete(f"{self._log}/{name}")

    @reports_codes_only
    def remove(self) -> None:
        """See `TableFormat`."""
        self._files.remove_folder(self._log)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What delta-rs raises in the block, as `TableFormat` says."""
        try:
            yield
        except CommitFailedError:
            raise TableOvertaken(self._log) from None

    def _begin(self, at: datetime) -> DeltaTable:
        self._files.make_folder(self._log)
        table = DeltaTable.create(
            self.location,
            schema=Schema.from_arrow(ARROW_SCHEMA),
            partition_by=_PARTITIONS,
            name="audit",
            storage_options=self._options,
            commit_properties=_properties(at, {}),
        )
        self._files.sync([self._commit_file(0)])
        return table

    def _open(self, version: str | None = None) -> DeltaTable:
        return DeltaTable(
            self.location,
            version=None if version is None else int(version),
            storage_options=self._options,
        )

    def _add_missing_columns(self, table: DeltaTable, at: datetime) -> None:
        known = {field.name for field in table.schema().fields}
        missing = [
            field for field in Schema.from_arrow(ARROW_SCHEMA).fields if field.name not in known
        ]
        if missing:
            table.alter.add_columns(missing, commit_properties=_properties(at, {}))

    def _actions(
        self, head: TableHead | None, change: SnapshotChange
    ) -> list[AddAction | RemoveAction]:
        files = head.files if head else {}
        at_ms = _ms(change.at)
        return [
            *(_add(segment, self._path(uri), at_ms) for segment, uri in change.added),
            *(
                RemoveAction(self._path(files[id_]), data_change=True, deletion_timestamp=at_ms)
                for id_ in sorted(change.removed)
            ),
        ]

    def _path(self, uri: str) -> str:
        path = uri.removeprefix(f"{self.location}/")
        if path == uri:
            raise ValueError(f"{uri} is not below the table's root {self.location}")
        return path

    def _commit_file(self, version: int) -> str:
        return f"{self._log}/{version:020d}.json"

    def _head(self, table: DeltaTable) -> TableHead:
        paths = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        version = table.version()
        content = self._files.read(self._commit_file(version))
        complete = None if content is None else _commit(version, content).complete_through_seq
        files = {segment_id_of(path): f"{self.location}/{path}" for path in paths}
        return self._head_of(version, files, complete or 0)

    def _head_of(self, version: int, files: dict[str, str], complete_through: int) -> TableHead:
        names = self._files.names(self._log)
        return TableHead(
            version=str(version),
            snapshot=str(version),
            files=files,
            complete_through_seq=complete_through,
            snapshots=sum(_COMMIT.fullmatch(name) is not None for name in names),
        )

    def _commits(self) -> list[_Commit]:
        """The commits whose files are in the log, in any order."""
        return [
            _commit(int(match[1]), content)
            for name in self._files.names(self._log)
            if (match := _COMMIT.fullmatch(name))
            and (content := self._files.read(f"{self._log}/{name}")) is not None
        ]


def _commit(version: int, content: bytes) -> _Commit:
    info: dict[str, Any] = {}
    removed = set()
    for action in _lines(content):
        info |= action.get("commitInfo", {})
        if "remove" in action:
            removed.add(segment_id_of(action["remove"]["path"]))
    at_ms, complete = info.get(PUBLISHED_AT), info.get(COMPLETE_THROUGH)
    return _Commit(
        version,
        None if at_ms is None else int(at_ms),
        None if complete is None else int(complete),
        frozenset(removed),
    )


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    """The lines of a commit, but for those of added files, which can be many."""
    for line in content.splitlines():
        if line and not line.startswith(b'{"add"'):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise StorageFailed("a commit in the log is damaged") from error


def _add(segment: Segment, path: str, at_ms: int) -> AddAction:
    return AddAction(
        path=path,
        size=segment.size,
        partition_values={
            TENANT_COLUMN: segment.tenant_id,
            _DAY_COLUMN: segment.day.isoformat(),
        },
        modification_time=at_ms,
        data_change=True,
        # As json.dumps would, in a tenth of the time: no value needs escaping.
        stats=(
            f'{{"numRecords":{segment.rows}'
            f',"minValues":{_bounds(segment.min_seq, segment.min_created_at)}'
            f',"maxValues":{_bounds(segment.max_seq, segment.max_created_at)}'
            ',"nullCount":{"seq":0,"created_at":0}}'
        ),
    )


def _version_in(pointer: bytes | None) -> object:
    """The version of the checkpoint that `pointer` names; None if it names none."""
    try:
        named = json.loads(pointer or b"")
    except ValueError:  # cut off
        return None
    return named.get("version") if isinstance(named, dict) else None


def _bounds(seq: int, created_at: datetime) -> str:
    return f'{{"seq":{seq},"created_at":"{created_at.isoformat(timespec="microseconds")}"}}'


def _properties(
    at: datetime, summary: dict[str, str], app_transactions: list[Transaction] | None = None
) -> CommitProperties:
    return CommitProperties(
        custom_metadata={PUBLISHED_AT: str(_ms(at)), **summary},
        # A retry would apply the change to a table that it was not computed from.
        max_commit_retries=0,
        app_transactions=app_transactions,
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
