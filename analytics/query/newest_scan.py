"""The short path to the newest rows: Arrow over rows that are kept decoded.

What people look at most often are the newest rows, with a filter or without; a mask over one
decoded row group answers that sooner than a query engine can plan it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.row_groups import Decoded, JournalRun
from analytics.model.cursors import Position
from analytics.model.filters import Query
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query.row_mask import matches, taken
from analytics.statistics.cardinality import Hopes
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import RowGroup
from analytics.storage.segment_writer import newest_first

GROUPS_MAX: Final = 8
"""Row groups looked through before the query engine is asked: each costs about a millisecond."""

READS_MAX: Final = 2
"""How many of them may be read from their file: that costs as much as the engine's answer."""

_INSTANT: Final = AUDIT_SCHEMA.field("created_at").type


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row group of a segment."""

    segment: Segment
    group: RowGroup
    min_created_at: datetime
    max_created_at: datetime


_Block = _Stored | JournalRun
"""Rows in order, newest first."""


@dataclass(slots=True)
class NewestRows:
    """Finds the first rows of one page, newest first, among decoded rows.

    `rows` are what DuckDB would find, as far as they go; unless `is_complete`, the page goes on
    behind the last of them.
    """

    decoded: Decoded
    query: Query
    watermark: int
    after: Position | None
    missing: int
    hopes: Hopes
    rows: pa.Table = field(default_factory=AUDIT_SCHEMA.empty_table)
    is_complete: bool = True
    looked_at: int = 0
    _groups: int = GROUPS_MAX
    _reads: int = READS_MAX

    def walk(self, segments: Sequence[Segment], batches: Sequence[JournalBatch]) -> None:
        """Look through `segments` and `batches`, newest day first. Raises StoreFault."""
        for day in sorted({s.day for s in segments} | {b.day for b in batches}, reverse=True):
            self._walk_day(day, segments, batches)
            if self.missing == 0 or not self.is_complete:
                return

    @property
    def density(self) -> float:
        """The part of the rows looked at that were found."""
        return self.rows.num_rows / self.looked_at if self.looked_at else 0.0

    def _walk_day(
        self, day: date, segments: Sequence[Segment], batches: Sequence[JournalBatch]
    ) -> None:
        own = self.hopes.promising(s for s in segments if s.day == day)
        found: list[pa.Table] = []
        for block in self._blocks(own, [b for b in batches if b.day == day]):
            # All that is still unread is at most as new as this block's newest row.
            newer = sum(_count_after(rows, block.max_created_at) for rows in found)
            if newer >= self.missing:
                break
            if not self._may_look_at(block):
                self.is_complete = False
                found = [_newer_than(rows, block.max_created_at) for rows in found]
                break
            read = self._rows(block)
            self.looked_at += read.num_rows
            found.append(taken(read, self._matches(read).slice(0, self.missing)))
        if not found:
            return
        # The rows of one block are in order.
        rows = found[0] if len(found) == 1 else newest_first(pa.concat_tables(found))
        rows = rows.slice(0, self.missing)
        self.missing -= rows.num_rows
        self.rows = pa.concat_tables([self.rows, rows])

    def _blocks(self, segments: Sequence[Segment], batches: Sequence[JournalBatch]) -> list[_Block]:
        """What may hold rows of the page, the newest first."""
        reached = None if self.after is None else self.after.created_at
        blocks: list[_Block] = [
            _Stored(segment, group, group.min_created_at, group.max_created_at)
            for segment in segments
            for group in self.decoded.row_groups(segment)
        ]
        blocks += self.decoded.runs(batches)
        wanted = (
            block
            for block in blocks
            if (self.query.since is None or block.max_created_at >= self.query.since)
            and (self.query.until is None or block.min_created_at < self.query.until)
            and (reached is None or block.min_created_at <= reached)
        )
        return sorted(wanted, key=lambda block: block.max_created_at, reverse=True)

    def _may_look_at(self, block: _Block) -> bool:
        """False when looking any further would cost more than asking DuckDB."""
        if isinstance(block, _Stored):
            self._groups -= 1
            self._reads -= not self.decoded.holds(block.segment, block.group.index)
        return self._groups >= 0 and self._reads >= 0

    def _rows(self, block: _Block) -> pa.Table:
        """All of the block, newest first."""
        if isinstance(block, JournalRun):
            return block.rows
        return self.decoded.rows(block.segment, block.group.index)

    def _matches(self, rows: pa.Table) -> pa.Array:
        """Where in `rows` the rows of the page are."""
        return matches(self.query, rows, self.watermark, self.after)


def _newer_than(rows: pa.Table, instant: datetime) -> pa.Table:
    return rows.filter(pc.greater(rows["created_at"], pa.scalar(instant, _INSTANT)))


def _count_after(rows: pa.Table, instant: datetime) -> int:
    return int(pc.sum(pc.greater(rows["created_at"], pa.scalar(instant, _INSTANT))).as_py() or 0)
