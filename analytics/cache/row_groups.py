"""Rows kept decoded: batches and row groups never change, so their Arrow tables may stay."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.journal_batches import JournalBatch, decode_batch
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import RowGroup, open_segment
from analytics.storage.segment_writer import newest_first

RUN_BATCHES_MAX: Final = 256
RUN_ROWS_MAX: Final = 32_768
"""How many batches are kept as one table, and with how many rows in all."""


@dataclass(frozen=True, slots=True)
class JournalRun:
    """Batches of one day that were accepted one behind the other: all their rows, newest first."""

    rows: pa.Table
    min_created_at: datetime
    max_created_at: datetime


class Decoded:
    """The rows of batches and of segments below `root`. Every method may raise StoreFault."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        self._root = root
        self.cache = ByteCache(bytes_max)

    def journal(self, batches: Iterable[JournalBatch]) -> pa.Table:
        """The rows of all `batches`, in no order."""
        runs = [run.rows for day in _by_day(batches) for run in self.runs(day)]
        return pa.concat_tables([AUDIT_SCHEMA.empty_table(), *runs])

    def runs(self, batches: Sequence[JournalBatch]) -> list[JournalRun]:
        """The rows of `batches`, all of one day, in order of acceptance."""
        return [self._run(run) for run in in_runs(batches)]

    def row_groups(self, segment: Segment) -> tuple[RowGroup, ...]:
        """The segment's row groups, in the file's order: newest first."""

        def read() -> tuple[tuple[RowGroup, ...], int]:
            with open_segment(self._root, segment) as file:
                groups = file.row_groups()
            return groups, ENTRY_BYTES * (1 + len(groups))

        found: tuple[RowGroup, ...] = self.cache.get(("groups", segment.segment_id), read)
        return found

    def rows(self, segment: Segment, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""

        def read() -> tuple[pa.Table, int]:
            with open_segment(self._root, segment) as file:
                rows = file.rows(index)
            return rows, rows.nbytes + ENTRY_BYTES

        return self.cache.get(_rows_key(segment, index), read)

    def holds(self, segment: Segment, index: int) -> bool:
        """True if this row group's rows are there without reading the file."""
        return _rows_key(segment, index) in self.cache

    def _run(self, batches: Sequence[JournalBatch]) -> JournalRun:
        def join() -> tuple[JournalRun, int]:
            rows = newest_first(pa.concat_tables(map(self._batch, batches)))
            at = rows["created_at"]
            return JournalRun(rows, at[-1].as_py(), at[0].as_py()), rows.nbytes + ENTRY_BYTES

        found: JournalRun = self.cache.get(("run", *(batch.first_seq for batch in batches)), join)
        return found

    def _batch(self, batch: JournalBatch) -> pa.Table:
        def decode() -> tuple[pa.Table, int]:
            rows = decode_batch(batch)
            return rows, rows.nbytes + ENTRY_BYTES

        # A seq is given out once, so the first one names a batch among all tenants.
        return self.cache.get(("batch", batch.first_seq), decode)


def _rows_key(segment: Segment, index: int) -> Hashable:
    return ("rows", segment.segment_id, index)


def in_runs(batches: Sequence[JournalBatch]) -> Iterator[Sequence[JournalBatch]]:
    """`batches` in runs whose lengths are powers of two: as long as may be, oldest first.

    So there are few of them, and when a batch is added to the journal most stay as they are: a run
    that is twice as long is made half as often.
    """
    start = 0
    while start < len(batches):
        length = min(RUN_BATCHES_MAX, 1 << (len(batches) - start).bit_length() - 1)
        while length > 1 and _rows(batches[start : start + length]) > RUN_ROWS_MAX:
            length //= 2
        yield batches[start : start + length]
        start += length


def _rows(batches: Iterable[JournalBatch]) -> int:
    return sum(batch.rows for batch in batches)


def _by_day(batches: Iterable[JournalBatch]) -> Iterable[list[JournalBatch]]:
    days: dict[date, list[JournalBatch]] = {}
    for batch in batches:
        days.setdefault(batch.day, []).append(batch)
    return days.values()
