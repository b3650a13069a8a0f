"""Segments: immutable Parquet files, each one tenant and one UTC day, rows newest first."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.copying import sha256_of
from analytics.durable import fsync, mkdir_synced
from analytics.layout import segment_path
from analytics.model.instants import midnight, utc_day
from analytics.model.schema import AUDIT_SCHEMA

# Measured: small row groups let a rare value skip most of the file, and short pages most of the
# row group. What repeats within a day compresses best as a dictionary. What differs from row to row
# would only fill one as large as itself, to be unpacked for a single row: there the difference to
# the row before is stored, at a quarter of the size.
_DIFFERENCES: Final = {
    "seq": "DELTA_BINARY_PACKED",
    "created_at": "DELTA_BINARY_PACKED",
    "received_at": "DELTA_BINARY_PACKED",
    "request_id": "DELTA_BYTE_ARRAY",
}
_BLOOM: Final = {"ndv": 20_000, "fpp": 0.01}
ROW_GROUP_ROWS: Final = 32_768
ROW_GROUP_BYTES: Final = 32 * 2**20
"""About what a row group takes at most when it is decoded: a merge may hold one of each file."""

PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [name for name in AUDIT_SCHEMA.names if name not in _DIFFERENCES],
    "column_encoding": _DIFFERENCES,
    "max_rows_per_page": 2_048,
    "write_page_index": True,
    "bloom_filter_options": dict.fromkeys(
        ("package_name", "actor", "subject", "oidc_binding_id"), _BLOOM
    ),
}


TEXT_DICTIONARIES: Final = [
    field.name
    for field in AUDIT_SCHEMA
    if pa.types.is_string(field.type) and field.name not in _DIFFERENCES
]
"""The text columns that files have as dictionaries, so that they can be read as such."""


class SchemaMismatch(ValueError):
    """Rows that are not AUDIT_SCHEMA."""


class MissingValue(SchemaMismatch):
    """A null where every row has a value."""


class WrongDay(ValueError):
    """Rows outside the day of their segment."""


class WrongOrder(ValueError):
    """Rows that do not follow the rows before them, newest first."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What the catalog knows of one file without opening it.

    `seq_base` is what the seq of each row is above the number in the file: rows that were written
    before they got their place count from 0 there. `min_seq` and `max_seq` have it in them.
    `event_counts` and `decision_counts` map each value to its number of rows; the empty string
    stands for null. `size` is in bytes, `sha256` that of the file ("" when it is not known).
    """

    segment_id: str
    tenant_id: str
    day: date
    rows: int
    size: int
    min_created_at: datetime
    max_created_at: datetime
    min_seq: int
    max_seq: int
    event_counts: dict[str, int]
    decision_counts: dict[str, int]
    seq_base: int = 0
    sha256: str = ""

    def path(self, root: Path) -> Path:
        """Where the file lies below the audit folder `root`."""
        return segment_path(root, self.tenant_id, self.day, self.segment_id)

    def placed(self, seq_base: int) -> "Segment":
        """The segment of a file whose rows count from 0, now that they have their place."""
        return replace(
            self,
            seq_base=seq_base,
            min_seq=self.min_seq + seq_base,
            max_seq=self.max_seq + seq_base,
        )


def write_segment(
    root: Path, tenant_id: str, day: date, segment_id: str, rows: pa.Table
) -> Segment:
    """`write_sorted` for rows in any order that fit in memory; what is refused touches no disk."""
    check_rows(rows, day)
    return write_sorted(root, tenant_id, day, segment_id, [newest_first(rows)])


def write_sorted(
    root: Path, tenant_id: str, day: date, segment_id: str, tables: Iterable[pa.Table]
) -> Segment:
    """One new Parquet file with the rows of `tables`, which follow each other newest first.

    AUDIT_SCHEMA throughout, at least one row in all, none outside the UTC `day`.
    When this returns, contents and name have reached the disk. Readers learn of the file from the
    catalog alone, so until a catalog line is committed it may as well not exist; a process that
    dies on the way leaves a file for `analytics.orphans`.
    Raises SchemaMismatch, WrongDay or WrongOrder, leaving no file.
    """
    target = segment_path(root, tenant_id, day, segment_id)
    mkdir_synced(target.parent, within=root)
    pending = target.with_suffix(".pending")
    tally = _Tally(day)
    try:
        with pq.ParquetWriter(pending, AUDIT_SCHEMA, **PARQUET_OPTIONS) as writer:
            for rows in in_row_groups(tally.over(tables)):
                writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        segment = tally.segment(segment_id, tenant_id)
        fsync(pending)
        segment = replace(segment, size=pending.stat().st_size, sha256=sha256_of(pending))
    except BaseException:
        # Left on a full disk, it would keep the room that everybody else needs.
        pending.unlink(missing_ok=True)
        raise
    pending.rename(target)  # within one folder, so readers meet all of it or none
    fsync(target.parent)  # a synced file under an unsynced name is lost all the same
    return segment


def remove_segments(root: Path, segments: Iterable[Segment]) -> None:
    """Unlink the files of `segments`, which nobody reads any more; missing ones are no fault."""
    for segment in segments:
        segment.path(root).unlink(missing_ok=True)


def in_row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of `tables`, in tables of ROW_GROUP_ROWS rows; the last may be shorter.

    Rows that are so long that they would exceed ROW_GROUP_BYTES come in several tables.
    """
    for rows in by_rows(tables, ROW_GROUP_ROWS):
        parts = -(-rows.nbytes // ROW_GROUP_BYTES)
        length = -(-rows.num_rows // parts)
        for start in range(0, rows.num_rows, length):
            yield rows.slice(start, length)


def by_rows(tables: Iterable[pa.Table], count_max: int) -> Iterator[pa.Table]:
    """The rows of `tables`, in tables of `count_max` rows; the last may be shorter."""
    held: list[pa.Table] = []
    count = 0
    for rows in tables:
        held.append(rows)
        count += rows.num_rows
        if count >= count_max:
            joined = pa.concat_tables(held)
            whole = count - count % count_max
            for start in range(0, whole, count_max):
                yield joined.slice(start, count_max)
            held, count = [joined.slice(whole)], count - whole
    if count:
        yield pa.concat_tables(held)


def check_rows(rows: pa.Table, day: date) -> None:
    """Raise SchemaMismatch or WrongDay unless `rows` may be in a segment of `day`."""
    if not rows.schema.equals(AUDIT_SCHEMA) or rows.num_rows == 0:
        raise SchemaMismatch("a segment holds at least one row of AUDIT_SCHEMA")
    if any(rows.column(field.name).null_count for field in AUDIT_SCHEMA if not field.nullable):
        raise MissingValue("a required column holds a null")
    first, last = _bounds(rows, "created_at")
    if first < midnight(day) or utc_day(last) != day:
        raise WrongDay(f"rows from {first} to {last} in the segment of {day}")


def newest_first(rows: pa.Table) -> pa.Table:
    """`rows` in the order every page has: `created_at`, then `seq`, both descending."""
    return rows.sort_by([("created_at", "descending"), ("seq", "descending")])


def describe(segment_id: str, tenant_id: str, day: date, tables: Iterable[pa.Table]) -> Segment:
    """What the catalog says of a file of `tables` (see `write_sorted`) but for size and digest.

    Raises SchemaMismatch, WrongDay, WrongOrder.
    """
    tally = _Tally(day)
    for _ in tally.over(tables):
        pass
    return tally.segment(segment_id, tenant_id)


_Place = tuple[datetime, int]
"""`created_at` and `seq`: where a row stands among all rows."""


@dataclass(slots=True)
class _Tally:
    """What a file's catalog line says, gathered while its rows go by newest first."""

    day: date
    rows: int = 0
    first: _Place | None = None
    last: _Place | None = None
    seqs: list[int] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)

    def over(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """`tables`, each checked and counted as it goes by."""
        for rows in tables:
            self._add(rows)
            yield rows

    def _add(self, rows: pa.Table) -> None:
        check_rows(rows, self.day)
        newest, oldest = _place(rows, 0), _place(rows, rows.num_rows - 1)
        if self.last is not None and newest >= self.last:
            raise WrongOrder(f"a row of {newest} behind one of {self.last}")
        self.rows += rows.num_rows
        self.first, self.last = self.first or newest, oldest
        self.seqs += _bounds(rows, "seq")
        self.events += _counts(rows, "event")
        self.decisions += _counts(rows, "decision")

    def segment(self, segment_id: str, tenant_id: str) -> Segment:
        """The line, but for size and digest. Raises SchemaMismatch if there was no row."""
        if self.first is None or self.last is None:
            raise SchemaMismatch("a segment holds at least one row")
        return Segment(
            segment_id=segment_id,
            tenant_id=tenant_id,
            day=self.day,
            rows=self.rows,
            size=0,
            min_created_at=self.last[0],
            max_created_at=self.first[0],
            min_seq=min(self.seqs),
            max_seq=max(self.seqs),
            event_counts=dict(self.events),
            decision_counts=dict(self.decisions),
        )


def _place(rows: pa.Table, index: int) -> _Place:
    return rows.column("created_at")[index].as_py(), rows.column("seq")[index].as_py()


def _bounds(rows: pa.Table, column: str) -> tuple[Any, Any]:
    bounds = pc.min_max(rows.column(column)).as_py()
    return bounds["min"], bounds["max"]


def _counts(rows: pa.Table, column: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in pc.value_counts(rows.column(column)).to_pylist():
        counts[entry["values"] or ""] += entry["counts"]
    return counts
