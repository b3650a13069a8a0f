"""Rows kept decoded: batches and row groups never change, so their Arrow tables may stay."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate
from typing import Final

import pyarrow as pa

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.schema import NO_ROWS
from analytics.storage.journal_batches import JournalBatch, decode_batch
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import RowGroup, SegmentFile, open_segment
from analytics.storage.segment_store import SegmentStore
from analytics.storage.segment_writer import newest_first

RUN_ROWS_MAX: Final = 32_768
"""How many rows are kept as one table, unless a single batch has more."""

_RUN_LENGTHS: Final = (256, 64, 16, 4)
"""How many batches a run has; those left over are runs of their own."""


@dataclass(frozen=True, slots=True)
class JournalRun:
    """Batches of one day that were accepted one after the other, and are kept as one table.

    No row of them is older than `min_created_at` or newer than `max_created_at`.
    """

    batches: tuple[JournalBatch, ...]
    rows: int
    min_created_at: datetime
    max_created_at: datetime

    @classmethod
    def of(cls, batches: Sequence[JournalBatch]) -> "JournalRun":
        """The run of `batches`, at least one."""
        return cls(
            tuple(batches),
            sum(batch.rows for batch in batches),
            min(batch.min_created_at for batch in batches),
            max(batch.max_created_at for batch in batches),
        )

    @property
    def max_seq(self) -> int:
        """The seq of its last row."""
        return self.batches[-1].max_seq

    def apart(self) -> list["JournalRun"]:
        """Each of its batches as a run of its own."""
        return [JournalRun.of([batch]) for batch in self.batches]


class Decoded:
    """The rows of batches and of `segments`. Every method may raise StoreFault."""

    def __init__(self, segments: SegmentStore, bytes_max: int) -> None:
        self._segments = segments
        self.cache = ByteCache(bytes_max)

    def journal(self, batches: Iterable[JournalBatch]) -> pa.Table:
        """The rows of all `batches`, in no order."""
        runs = [self.run_rows(run) for run in journal_runs(batches)]
        return pa.concat_tables([NO_ROWS, *runs])

    def run_rows(self, run: JournalRun) -> pa.Table:
        """The rows of the run, AUDIT_SCHEMA, newest first."""

        def join() -> tuple[pa.Table, int]:
            rows = newest_first(pa.concat_tables(map(self.batch_rows, run.batches)))
            return rows, rows.nbytes + ENTRY_BYTES

        return self.cache.get(("run", *(batch.first_seq for batch in run.batches)), join)

    def row_groups(self, segment: Segment) -> tuple[RowGroup, ...]:
        """The segment's row groups, in the file's order: newest first."""

        def read() -> tuple[tuple[RowGroup, ...], int]:
            with self._segments.local([segment]), self._open(segment) as file:
                groups = file.row_groups()
            return groups, ENTRY_BYTES * (1 + len(groups))

        found: tuple[RowGroup, ...] = self.cache.get(("groups", segment.segment_id), read)
        return found

    def rows(self, segment: Segment, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""

        def read() -> tuple[pa.Table, int]:
            with self._segments.local([segment]), self._open(segment) as file:
                rows = file.rows(index)
            return rows, rows.nbytes + ENTRY_BYTES

        return self.cache.get(_rows_key(segment, index), read)

    def _open(self, segment: Segment) -> AbstractContextManager[SegmentFile]:
        return open_segment(self._segments.root, segment)

    def holds(self, segment: Segment, index: int) -> bool:
        """True if this row group's rows are there without reading the file."""
        return _rows_key(segment, index) in self.cache

    def batch_rows(self, batch: JournalBatch) -> pa.Table:
        """The rows of one batch, AUDIT_SCHEMA, in the order of their seqs."""

        def decode() -> tuple[pa.Table, int]:
            rows = decode_batch(batch)
            return rows, rows.nbytes + ENTRY_BYTES

        # A seq is given out once, so the first one names a batch among all tenants.
        return self.cache.get(("batch", batch.first_seq), decode)


def _rows_key(segment: Segment, index: int) -> Hashable:
    return ("rows", segment.segment_id, index)


def journal_runs(batches: Iterable[JournalBatch]) -> Iterator[JournalRun]:
    """`batches`, in order of acceptance, as runs of one day each."""
    days: dict[date, list[JournalBatch]] = {}
    for batch in batches:
        days.setdefault(batch.day, []).append(batch)
    for held in days.values():
        yield from map(JournalRun.of, in_runs(held))


def in_runs(batches: Sequence[JournalBatch]) -> Iterator[Sequence[JournalBatch]]:
    """`batches` in runs of 256, 64, 16, 4 and one: as long as possible, the longest first.

    So there are few of them, and most stay as they are when batches are added to the journal. The
    newest runs are the shortest, and a page of the newest rows decodes no other.
    """
    rows_before = list(accumulate((batch.rows for batch in batches), initial=0))

    def fits(start: int, length: int) -> bool:
        end = start + length
        return end <= len(batches) and rows_before[end] - rows_before[start] <= RUN_ROWS_MAX

    start = 0
    while start < len(batches):
        length = next((n for n in _RUN_LENGTHS if fits(start, n)), 1)
        yield batches[start : start + length]
        start += length
