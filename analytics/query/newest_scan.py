"""The newest rows from row groups and journal runs that are kept decoded, by a mask over Arrow.

What people look at most often are the newest rows, with a filter or without. A mask over a
decoded row group answers that sooner than a query engine can plan it.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.row_groups import Decoded, JournalRun, journal_runs
from analytics.model.cursors import Position
from analytics.model.filters import Query
from analytics.model.schema import AUDIT_SCHEMA, NO_ROWS
from analytics.query.row_mask import matches, taken
from analytics.query.scans import Resources, Work
from analytics.statistics.cardinality import FEW_ROWS_MAX, CardinalityEstimate
from analytics.statistics.zone_maps import may_match
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import RowGroup
from analytics.storage.segment_writer import ROW_GROUP_ROWS, newest_first
from analytics.storage.snapshot import Snapshot

GROUPS_MAX: Final = 8
"""Row groups looked through before DuckDB is asked: each costs about a millisecond."""

READS_MAX: Final = 2
"""How many of them may be read from their file: that costs as much as an answer of DuckDB."""

WHOLE_BATCH_ROWS: Final = 64
"""A page without filter reads journal batches of at least this many rows on average one by one."""

SURPLUS: Final = 4
"""Row groups are added until they are expected to hold this many times the rows of the page."""

_INSTANT: Final = AUDIT_SCHEMA.field("created_at").type
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A row group of a segment."""

    segment: Segment
    group: RowGroup

    @property
    def min_created_at(self) -> datetime:
        """No row is older."""
        return self.group.min_created_at

    @property
    def max_created_at(self) -> datetime:
        """No row is newer."""
        return self.group.max_created_at

    @property
    def max_seq(self) -> int:
        """No row has a higher seq."""
        return self.segment.max_seq


RowBlock = StoredGroup | JournalRun
"""Rows in order, newest first."""


@dataclass(frozen=True, slots=True)
class RowGroupLookup:
    """The rows of the query in `blocks`, newest first, that are newer than `until`.

    `until` is None when no other block can hold rows of the page. `part` is what the blocks are of.
    """

    name: ClassVar[str] = "row group lookup"
    part: Snapshot
    query: Query
    estimate: int | None
    blocks: tuple[RowBlock, ...]
    until: datetime | None
    after: Position | None = None

    def first(self, resources: Resources, limit: int, work: Work) -> pa.Table:
        """As `CachedRowsScan.first`. Raises StoreFault."""
        found: list[pa.Table] = []
        for block in self.blocks:
            # All that is still unread is at most as new as this block's newest row.
            newer = sum(_count_newer(rows, block.max_created_at) for rows in found)
            if newer >= limit:
                break
            if resources.cancellation is not None:
                resources.cancellation.check()
            rows = _rows(block, resources, work)
            if self._has_all_of(block):
                found.append(rows.slice(0, limit))
                continue
            places = matches(self.query, rows, self.part.watermark, self.after)
            found.append(taken(rows, places.slice(0, limit)))
        joined = pa.concat_tables([NO_ROWS, *found])
        # The rows of one block are in order already.
        ordered = joined if len(found) < 2 else newest_first(joined)
        if self.until is not None:
            ordered = ordered.slice(0, _count_newer(ordered, self.until))
        return ordered.slice(0, limit)

    def _has_all_of(self, block: RowBlock) -> bool:
        """True if every row of the block is of the page, if it has the room."""
        query, after = self.query, self.after
        return (
            not query.conditions
            and block.max_seq <= min(self.part.watermark, (after or self.part).watermark)
            and (query.since is None or block.min_created_at >= query.since)
            and (query.until is None or block.max_created_at < query.until)
            and (after is None or block.max_created_at < after.created_at)
        )


def plan_newest(
    decoded: Decoded,
    snapshot: Snapshot,
    query: Query,
    after: Position | None,
    limit: int,
    estimate: CardinalityEstimate,
) -> RowGroupLookup | None:
    """The lookup that is expected to fill a page of `limit` rows of `snapshot`, newest first.

    None if the newest row groups are known to hold too few rows, or if so few rows are wanted of
    so many row groups that searching their segments is quicker.
    """
    queue = _NewestBlocks(decoded, snapshot, query, after, estimate)
    if _are_rare(queue.segments(), limit, estimate):
        return None
    blocks: list[RowBlock] = []
    groups, reads, expected = GROUPS_MAX, READS_MAX, 0.0
    is_known = True
    for block in queue:
        if isinstance(block, StoredGroup):
            is_read = not decoded.holds(block.segment, block.group.index)
            if groups == 0 or (is_read and reads == 0):
                queue.put_back(block)
                break
            groups, reads = groups - 1, reads - is_read
        blocks.append(block)
        rows = _expected_rows(block, query, after, estimate)
        is_known &= rows is not None
        expected += rows or 0
        if is_known and expected >= SURPLUS * limit:
            break
    until = queue.newest_left
    if until is not None and is_known and expected < limit:
        return None
    estimated = round(expected) if is_known else None
    return RowGroupLookup(_part_of(snapshot, blocks), query, estimated, tuple(blocks), until, after)


def _part_of(snapshot: Snapshot, blocks: Sequence[RowBlock]) -> Snapshot:
    """What `blocks` are of, in the order of `snapshot`."""
    used = {block.segment.segment_id for block in blocks if isinstance(block, StoredGroup)}
    runs = [block for block in blocks if isinstance(block, JournalRun)]
    batches = sorted((b for run in runs for b in run.batches), key=lambda batch: batch.first_seq)
    return replace(
        snapshot,
        segments=tuple(s for s in snapshot.segments if s.segment_id in used),
        batches=tuple(batches),
    )


def _are_rare(segments: Iterable[Segment], limit: int, estimate: CardinalityEstimate) -> bool:
    """True if the newest GROUPS_MAX row groups are not the place to look for `limit` rows.

    They hold fewer; or so few that searching their segments is quicker than reading more than
    READS_MAX row groups. Decided by what is known of whole `segments`, newest first, unopened.
    """
    left, expected, total = GROUPS_MAX, 0.0, 0
    for segment in segments:
        rows = estimate.rows(segment)
        if rows is None:
            return False
        if rows == 0:
            continue
        groups = math.ceil(segment.rows / ROW_GROUP_ROWS)
        expected += rows * min(groups, left) / groups
        total += rows
        left -= groups
        if left < 0:
            return expected < limit
        if expected >= SURPLUS * limit:
            break
    return GROUPS_MAX - left > READS_MAX and estimate.is_indexed and total <= FEW_ROWS_MAX


def _expected_rows(
    block: RowBlock, query: Query, after: Position | None, estimate: CardinalityEstimate
) -> float | None:
    """How many rows of the page to expect in `block`; None if that is unknown."""
    is_cut = (
        (after is not None and block.max_created_at >= after.created_at)
        or (query.since is not None and block.min_created_at < query.since)
        or (query.until is not None and block.max_created_at >= query.until)
    )
    if is_cut:
        return 0.0
    if isinstance(block, JournalRun):
        return float(block.rows) if not query.conditions else 0.0
    rows = estimate.rows(block.segment)
    return None if rows is None else rows * block.group.rows / block.segment.rows


_Item = Segment | StoredGroup | JournalRun


class _NewestBlocks:
    """The blocks of a snapshot, newest first; what is not reached is not opened or decoded."""

    def __init__(
        self,
        decoded: Decoded,
        snapshot: Snapshot,
        query: Query,
        after: Position | None,
        estimate: CardinalityEstimate,
    ) -> None:
        self._decoded = decoded
        self._query = query
        self._after = after
        self._watermark = snapshot.watermark
        self._estimate = estimate
        self._number = count()
        # Quick for what is in order already, as the store has it.
        self._segments = sorted(snapshot.segments, key=lambda s: s.max_created_at, reverse=True)
        self._heap: list[tuple[timedelta, int, _Item]] = []
        self._coming = iter(self._segments)
        self._push_next_segment()
        for run in journal_runs(snapshot.batches):
            # Without a filter a few batches fill the page; joining them to others only costs time.
            is_whole = query.conditions or run.rows < len(run.batches) * WHOLE_BATCH_ROWS
            for block in [run] if is_whole else run.apart():
                self._push_if_wanted(block)

    def segments(self) -> Iterator[Segment]:
        """The segments that may hold rows of the query, newest first."""
        return filter(self._may_match, self._segments)

    @property
    def newest_left(self) -> datetime | None:
        """The latest instant that rows not yet yielded may have; None if none are left."""
        while self._heap:
            newest, _, item = self._heap[0]
            if not isinstance(item, Segment) or self._may_match(item):
                return _EPOCH - newest
            self._pop()
        return None

    def put_back(self, block: RowBlock) -> None:
        """Return `block`, which the iteration then yields again."""
        self._push(block.max_created_at, block)

    def __iter__(self) -> Iterator[RowBlock]:
        while self._heap:
            item = self._pop()
            if not isinstance(item, Segment):
                yield item
            elif self._may_match(item):
                self._open(item)

    def _pop(self) -> _Item:
        _, _, item = heapq.heappop(self._heap)
        if isinstance(item, Segment):
            self._push_next_segment()
        return item

    def _push_next_segment(self) -> None:
        """Let the heap hold one segment, the newest not yet reached: no other is newer."""
        for segment in islice(self._coming, 1):
            self._push(segment.max_created_at, segment)

    def _may_match(self, segment: Segment) -> bool:
        return may_match(segment, self._query, self._watermark, self._after)

    def _open(self, segment: Segment) -> None:
        if self._estimate.rows(segment) == 0:
            return
        for group in self._decoded.row_groups(segment):
            if self._estimate.may_be_in(segment, group.index):
                self._push_if_wanted(StoredGroup(segment, group))

    def _push_if_wanted(self, block: RowBlock) -> None:
        if (
            (self._query.since is None or block.max_created_at >= self._query.since)
            and (self._query.until is None or block.min_created_at < self._query.until)
            and (self._after is None or block.min_created_at <= self._after.created_at)
        ):
            self._push(block.max_created_at, block)

    def _push(self, newest: datetime, item: _Item) -> None:
        heapq.heappush(self._heap, (_EPOCH - newest, next(self._number), item))


def _rows(block: RowBlock, resources: Resources, work: Work) -> pa.Table:
    """All of the block, newest first."""
    decoded = resources.row_groups
    if decoded is None:
        raise ValueError("row groups are looked up where they are kept decoded")
    if isinstance(block, JournalRun):
        return decoded.run_rows(block)
    work.row_groups += 1
    work.files += not decoded.holds(block.segment, block.group.index)
    return decoded.rows(block.segment, block.group.index)


def _count_newer(rows: pa.Table, instant: datetime) -> int:
    return int(pc.sum(pc.greater(rows["created_at"], pa.scalar(instant, _INSTANT))).as_py() or 0)
