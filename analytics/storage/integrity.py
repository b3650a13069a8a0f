"""Checking that files and journal batches hold what the catalog says of them.

Everything is read, one row group at a time. Beyond that, memory holds one bit for each row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.model.instants import format_us
from analytics.model.schema import NewerSchema
from analytics.storage.audit_files import SWEPT, FileRole, role_of
from analytics.storage.file_copy import PROCESS_FAULTS
from analytics.storage.index_builder import IndexBuilder
from analytics.storage.journal_batches import JournalBatch, decode_batch
from analytics.storage.reindex import index_fault, same_bits
from analytics.storage.segment_metadata import (
    MissingValue,
    SchemaMismatch,
    Segment,
    WrongDay,
    WrongOrder,
    check_rows,
    describe,
)
from analytics.storage.segment_reader import OtherSchema, OtherSegment, SegmentFile, open_segment
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing, SegmentStore
from analytics.storage.verified_files import (
    REMEDY,
    DamagedFile,
    ExpectedFile,
    WrongDigest,
    WrongSize,
    index_file,
    rows_file,
    verify_file,
)

_PAGE_BITS: Final = 2048

# Damaged bytes also cause others: an instant beyond the year 9999, an id of another form.
_FAULTS: Final = (StoreFault, OSError, ValueError, OverflowError, pa.ArrowException)


class FaultKind(StrEnum):
    """What can be wrong."""

    MISSING_FILE = "missing_file"
    WRONG_SIZE = "wrong_size"
    WRONG_SHA256 = "wrong_sha256"
    UNREADABLE = "unreadable"
    WRONG_SCHEMA = "wrong_schema"
    MISSING_VALUE = "missing_value"
    WRONG_DAY = "wrong_day"
    WRONG_ORDER = "wrong_order"
    WRONG_STATISTICS = "wrong_statistics"
    DUPLICATE_SEQ = "duplicate_seq"
    WRONG_INDEX = "wrong_index"
    UNKNOWN_SEQ = "unknown_seq"
    UNKNOWN_TENANT = "unknown_tenant"
    MISPLACED_FILE = "misplaced_file"
    UNFINISHED_FILE = "unfinished_file"
    ORPHAN_FILE = "orphan_file"
    FOREIGN_FILE = "foreign_file"
    WRONG_RECEIPT = "wrong_receipt"
    LOST_ROWS = "lost_rows"


_KINDS: Final[dict[type[Exception], FaultKind]] = {
    MissingValue: FaultKind.MISSING_VALUE,
    SchemaMismatch: FaultKind.WRONG_SCHEMA,
    OtherSchema: FaultKind.WRONG_SCHEMA,
    NewerSchema: FaultKind.WRONG_SCHEMA,
    WrongDay: FaultKind.WRONG_DAY,
    WrongOrder: FaultKind.WRONG_ORDER,
    WrongSize: FaultKind.WRONG_SIZE,
    ObjectMissing: FaultKind.MISSING_FILE,
    ObjectDamaged: FaultKind.WRONG_SHA256,
    WrongDigest: FaultKind.WRONG_SHA256,
    OtherSegment: FaultKind.MISPLACED_FILE,
}

_FILE_KINDS: Final = {
    FileRole.MISPLACED: FaultKind.MISPLACED_FILE,
    FileRole.UNFINISHED: FaultKind.UNFINISHED_FILE,
    FileRole.ORPHAN: FaultKind.ORPHAN_FILE,
    FileRole.FOREIGN: FaultKind.FOREIGN_FILE,
}

_OLD_BACKUP: Final = (
    "restore a backup taken before the fault elsewhere, and compare what it has of this day"
)
_REMEDIES: Final = {
    FaultKind.WRONG_INDEX: "run `countersign audit reindex`",
    FaultKind.WRONG_STATISTICS: _OLD_BACKUP,
    FaultKind.DUPLICATE_SEQ: _OLD_BACKUP,
    FaultKind.UNKNOWN_SEQ: (
        "stop the service, and restore the database from a backup that is not older"
    ),
    FaultKind.UNKNOWN_TENANT: "restore the database from a backup that has the organisation",
    FaultKind.MISPLACED_FILE: "move it back; a copy may be deleted",
    FaultKind.FOREIGN_FILE: "move it elsewhere",
    FaultKind.ORPHAN_FILE: "none: the service removes it",
    FaultKind.UNFINISHED_FILE: "none: the service removes it",
    FaultKind.LOST_ROWS: "none: the operator gave the segment up",
    FaultKind.WRONG_RECEIPT: (
        "use the audit row audit_export_finished, not the receipt, and restore the database from a"
        " backup"
    ),
}
"""What to do; for all others to restore the segment, or the database with its journal."""

_STATISTICS: Final = (
    "rows",
    "min_created_at",
    "max_created_at",
    "min_seq",
    "max_seq",
    "event_counts",
    "decision_counts",
)
"""What the planner believes of a segment without opening it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and where it is; `segment` is None for journal batches."""

    kind: FaultKind
    detail: str
    tenant_id: str | None
    day: date | None
    segment: str | None = None

    @property
    def text(self) -> str:
        """What is wrong, without where."""
        return f"{self.kind}: {self.detail}"

    @property
    def remedy(self) -> str:
        """What the operator can do."""
        return _REMEDIES.get(self.kind, _OLD_BACKUP if self.segment is None else REMEDY)


@dataclass(slots=True)
class SeqSet:
    """The seq seen so far: one bit for each, in pages, because they come in long runs."""

    _pages: dict[int, int] = field(default_factory=dict)

    def add(self, seq: pa.ChunkedArray) -> list[int]:
        """Add all of `seq`; those that were there before, or twice in it.

        Of a run that meets several only the first is named.
        """
        return [first for run in _runs(seq) if (first := self._add_run(*run)) is not None]

    def _add_run(self, first: int, count: int) -> int | None:
        met: int | None = None
        while count:
            page, offset = divmod(first, _PAGE_BITS)
            in_page = min(count, _PAGE_BITS - offset)
            mask = ((1 << in_page) - 1) << offset
            held = self._pages.get(page, 0)
            if held & mask and met is None:
                lowest = held & mask & -(held & mask)
                met = page * _PAGE_BITS + lowest.bit_length() - 1
            self._pages[page] = held | mask
            first, count = first + in_page, count - in_page
        return met


def _runs(seq: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """`seq` as runs of consecutive numbers: the first of each, and its length."""
    ordered = seq.combine_chunks().sort()
    begins = pc.fill_null(pc.not_equal(pc.pairwise_diff(ordered), 1), fill_value=True)
    starts = pc.indices_nonzero(begins)
    firsts, places = ordered.take(starts).to_pylist(), [*starts.to_pylist(), len(ordered)]
    for first, (start, end) in zip(firsts, pairwise(places), strict=True):
        yield first, end - start


def _kind_of(error: Exception) -> FaultKind:
    # What opens a file raises a StoreFault whose cause is the missing file.
    is_gone = FileNotFoundError in {type(error), type(error.__cause__)}
    return _KINDS.get(type(error), FaultKind.MISSING_FILE if is_gone else FaultKind.UNREADABLE)


def check_segment(
    root: Path, segment: Segment, seen: SeqSet, on_rows: Callable[[pa.Table], object]
) -> list[Finding]:
    """How the file of `segment` differs from what the catalog says of it.

    `seen` has the seq of all that was checked before, and then those of this file as well;
    `on_rows` gets all rows that are read. None are of a file with other bytes: its rows could make
    others look wrong. Reading ends at rows that cannot be in a segment.
    """
    findings: list[Finding] = []

    def report(kind: FaultKind, detail: str) -> None:
        findings.append(
            Finding(kind, detail, segment.tenant_id, segment.day, segment=segment.segment_id)
        )

    try:
        verify_file(rows_file(root, segment))
        index = IndexBuilder(same_bits(root, segment))
        with open_segment(root, segment) as opened:
            for kind, detail in _check_contents(opened, seen, index, on_rows):
                report(kind, detail)
        # An index built from wrong rows differs, too: only right rows can show that it is wrong.
        if not findings:
            fault = index_fault(root, segment, index) or _index_damage(root, segment)
            if fault is not None:
                report(FaultKind.WRONG_INDEX, fault)
    except _FAULTS as error:
        report(_kind_of(error), str(error))
    return findings


def _index_damage(root: Path, segment: Segment) -> str | None:
    """How the bytes of the index are not those that the catalog says; a missing one is no fault."""
    file = index_file(root, segment)
    if not segment.index_sha256 or not file.path.exists():
        return None
    try:
        verify_file(file)
    except DamagedFile as fault:
        return str(fault)
    return None


def verify_stored(
    store: SegmentStore, segment: Segment, on_read: Callable[[int], object]
) -> Finding | None:
    """What is wrong with the file of `segment` as `store` has it; for `on_read` see `verify_file`.

    A segment without a digest is read as by `check_segment`. Raises StoreUnreachable, and other
    StoreFaults that say nothing of the file.
    """
    if segment.sha256:
        return _stored_fault(store, segment, rows_file(store.root, segment), on_read)
    with store.as_stored(segment) as root:
        findings = check_segment(root, segment, SeqSet(), lambda rows: None)
    on_read(segment.size)
    return next((each for each in findings if each.kind is not FaultKind.WRONG_INDEX), None)


def verify_stored_index(
    store: SegmentStore, segment: Segment, on_read: Callable[[int], object]
) -> Finding | None:
    """As `verify_stored` for the index of `segment`, whose digest the catalog must have."""
    fault = _stored_fault(store, segment, index_file(store.root, segment), on_read)
    return fault and replace(fault, kind=FaultKind.WRONG_INDEX)


def _stored_fault(
    store: SegmentStore, segment: Segment, file: ExpectedFile, on_read: Callable[[int], object]
) -> Finding | None:
    try:
        store.verify(file, on_read)
    except StoreFault as fault:
        cause = fault.__cause__
        if isinstance(fault, StoreUnreachable):
            raise
        if isinstance(cause, OSError) and cause.errno in PROCESS_FAULTS:
            raise
        place = segment.tenant_id, segment.day, segment.segment_id
        return Finding(_kind_of(fault), str(fault), *place)
    return None


def _check_contents(
    opened: SegmentFile, seen: SeqSet, index: IndexBuilder, on_rows: Callable[[pa.Table], object]
) -> Iterator[tuple[FaultKind, str]]:
    segment = opened.segment
    if not opened.file.schema_arrow.equals(opened.schema):
        version = segment.schema_version
        yield FaultKind.WRONG_SCHEMA, f"its columns are not those of schema version {version}"
        return
    repeated: list[int] = []
    try:
        held = describe(
            segment.segment_id,
            segment.tenant_id,
            segment.day,
            _read(opened, seen, repeated, index, on_rows),
        )
    except (SchemaMismatch, WrongDay, WrongOrder) as error:
        yield _KINDS[type(error)], str(error)
    else:
        for name in _STATISTICS:
            said, is_so = getattr(segment, name), getattr(held, name)
            if said != is_so:
                yield FaultKind.WRONG_STATISTICS, f"{name} is {is_so}, the catalog says {said}"
    if repeated:
        yield FaultKind.DUPLICATE_SEQ, _duplicates(repeated)


def _read(
    opened: SegmentFile,
    seen: SeqSet,
    repeated: list[int],
    index: IndexBuilder,
    on_rows: Callable[[pa.Table], object],
) -> Iterator[pa.Table]:
    for group in range(opened.row_group_count):
        rows = opened.rows(group)
        # Before the order is checked: later segments are compared with these seq in any case.
        repeated += seen.add(rows.column("seq"))
        if not _is_newest_first(rows):
            raise WrongOrder(f"the rows of row group {group} are not newest first")
        index.add(rows)
        yield rows
        on_rows(rows)


def _is_newest_first(rows: pa.Table) -> bool:
    """By `created_at`, then `seq`; `SeqSet` finds equal ones."""
    at, seq = rows.column("created_at"), rows.column("seq")
    count = rows.num_rows - 1
    is_older = pc.greater(at.slice(0, count), at.slice(1))
    is_same = pc.equal(at.slice(0, count), at.slice(1))
    follows = pc.and_(is_same, pc.greater_equal(seq.slice(0, count), seq.slice(1)))
    return bool(pc.all(pc.or_(is_older, follows), min_count=0).as_py())


def _duplicates(repeated: Sequence[int]) -> str:
    return (
        f"seq {min(repeated)} is in another segment or journal batch, too"
        if len(repeated) == 1
        else f"seq {min(repeated)} and others are in other segments or journal batches, too"
    )


def check_batches(
    tenant_id: str,
    batches: Sequence[JournalBatch],
    seen: SeqSet,
    on_rows: Callable[[pa.Table], object] = lambda rows: None,
) -> list[Finding]:
    """What is wrong with journal batches of a tenant; `seen`, `on_rows` as for `check_segment`."""
    return [
        Finding(kind, f"journal batch from seq {batch.first_seq}: {detail}", tenant_id, batch.day)
        for batch in batches
        for kind, detail in _check_batch(batch, seen, on_rows)
    ]


def _check_batch(
    batch: JournalBatch, seen: SeqSet, on_rows: Callable[[pa.Table], object]
) -> Iterator[tuple[FaultKind, str]]:
    try:
        rows = decode_batch(batch)
        on_rows(rows)
        if repeated := seen.add(rows.column("seq")):
            yield FaultKind.DUPLICATE_SEQ, _duplicates(repeated)
        check_rows(rows, batch.day)
        held = pc.min_max(rows.column("created_at")).as_py()
        if held["min"] < batch.min_created_at or held["max"] > batch.max_created_at:
            yield (
                FaultKind.WRONG_STATISTICS,
                f"created_at from {format_us(held['min'])} to {format_us(held['max'])},"
                f" stored as from {format_us(batch.min_created_at)}"
                f" to {format_us(batch.max_created_at)}",
            )
    except _FAULTS as error:
        yield _KINDS.get(type(error), FaultKind.UNREADABLE), str(error)


def check_files(
    root: Path,
    files: Sequence[Path],
    places: Mapping[str, tuple[str, date]],
    is_there: Callable[[Path], bool] = Path.exists,
) -> tuple[list[Finding], list[Finding]]:
    """Files that are no segment: those that stay where they are, and those that sweeps remove.

    `places` has tenant and day of every segment in the catalog, retired ones too, and was read
    after `files` were listed. `is_there` says whether one of them still is.
    """
    staying: list[Finding] = []
    swept: list[Finding] = []
    for path in files:
        role = role_of(root, path, places)
        # The file may have been swept, or renamed into place, while the catalog was read.
        if role is not FileRole.SEGMENT and is_there(path):
            finding = _finding(root, path, _FILE_KINDS[role])
            (swept if role in SWEPT else staying).append(finding)
    return staying, swept


def _finding(root: Path, path: Path, kind: FaultKind) -> Finding:
    """The finding, with the tenant and day that the file's folders name, if they do."""
    place = path.relative_to(root)
    folders = dict(part.split("=", 1) for part in place.parts[:-1] if "=" in part)
    try:
        day = date.fromisoformat(folders.get("day", ""))
    except ValueError:
        day = None
    return Finding(kind, str(place), folders.get("tenant"), day, segment=path.stem)
