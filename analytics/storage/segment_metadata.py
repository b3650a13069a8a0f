"""What the catalog knows of a segment without opening its file, and how that is computed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.instants import midnight, utc_day
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.layout import index_path, segment_path

VERSION_KEY: Final = b"countersign.schema_version"
"""Where a file's metadata says which columns it has. Files of version 1 do not say."""

_OWNER_KEYS: Final = ("countersign.tenant_id", "countersign.day", "countersign.segment_id")

FIELD_IDS_SINCE: Final = 2
"""The first schema version whose files identify their columns by field ids."""


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

    `seq_base` is added to the number in the file to get the seq of a row: rows that were written
    before they got their place count from 0 there. `min_seq` and `max_seq` include it. All of them
    were received at `received_at`, which replaces what the file says; None: each row says when.
    `event_counts` and `decision_counts` map each value to its number of rows; the empty string
    stands for null. `size` is in bytes, `sha256` that of the file ("" when it is not known).
    `schema_version` says which columns the file has, see `schema_of`. `index_size` and
    `index_sha256` are those of the index file beside it (0 and "" while it has none).
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
    schema_version: int = 1
    sha256: str = ""
    index_size: int = 0
    index_sha256: str = ""
    received_at: datetime | None = None

    @property
    def is_portable(self) -> bool:
        """True if engines that know nothing of the catalog read the file correctly.

        Other files count their rows from 0 and say when they were read, or have no field ids.
        """
        return self.seq_base == 0 and self.schema_version >= FIELD_IDS_SINCE

    def path(self, root: Path) -> Path:
        """Where the file lies below the audit folder `root`."""
        return segment_path(root, self.tenant_id, self.day, self.segment_id)

    def index_path(self, root: Path) -> Path:
        """Where the index of the file lies; it may not be there."""
        return index_path(root, self.tenant_id, self.day, self.segment_id)

    def with_seq_base(self, seq_base: int, received_at: datetime | None = None) -> "Segment":
        """The segment of a file whose rows count from 0, now that they have their place."""
        return replace(
            self,
            seq_base=seq_base,
            min_seq=self.min_seq + seq_base,
            max_seq=self.max_seq + seq_base,
            received_at=received_at,
        )


def owner_metadata(tenant_id: str, day: date, segment_id: str) -> dict[str, str]:
    """What a file's metadata says of whose it is, beside its rows."""
    return dict(zip(_OWNER_KEYS, (tenant_id, day.isoformat(), segment_id), strict=True))


def check_rows(rows: pa.Table, day: date) -> None:
    """Raise SchemaMismatch or WrongDay unless `rows` may be in a segment of `day`."""
    if not rows.schema.equals(AUDIT_SCHEMA) or rows.num_rows == 0:
        raise SchemaMismatch("a segment holds at least one row of AUDIT_SCHEMA")
    if any(rows.column(field.name).null_count for field in AUDIT_SCHEMA if not field.nullable):
        raise MissingValue("a required column holds a null")
    first, last = _bounds(rows, "created_at")
    if first < midnight(day) or utc_day(last) != day:
        raise WrongDay(f"rows from {first} to {last} in the segment of {day}")


def describe(segment_id: str, tenant_id: str, day: date, tables: Iterable[pa.Table]) -> Segment:
    """What the catalog says of a file of `tables` (see `write_sorted`) but for size and digest.

    Raises SchemaMismatch, WrongDay, WrongOrder.
    """
    tally = StatisticsBuilder(day)
    for _ in tally.over(tables):
        pass
    return tally.segment(segment_id, tenant_id)


_Place = tuple[datetime, int]
"""`created_at` and `seq`: where a row stands among all rows."""


@dataclass(slots=True)
class StatisticsBuilder:
    """What a file's catalog line says, gathered while its rows pass, newest first."""

    day: date
    rows: int = 0
    first: _Place | None = None
    last: _Place | None = None
    seqs: list[int] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)

    def over(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """`tables`, each checked and counted as it passes."""
        for rows in tables:
            self._add(rows)
            yield rows

    def _add(self, rows: pa.Table) -> None:
        check_rows(rows, self.day)
        newest, oldest = _place(rows, 0), _place(rows, rows.num_rows - 1)
        # An equal place is one row twice: no two rows have the same seq.
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
