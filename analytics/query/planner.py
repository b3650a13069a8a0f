"""Which scans answer a query, in which order, decided before any row is read.

The catalog's statistics and the segments' indexes say how many rows of the query each segment may
hold. They are upper bounds, and only a segment that can hold no row is left out; so an estimate
that is off costs time and never a row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from analytics.cache.results import ResultCache
from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.filters import Order, Query
from analytics.model.instants import utc_day
from analytics.query.buckets import Bucket
from analytics.query.newest_scan import RowGroupLookup, plan_newest
from analytics.query.ordered_scan import OrderedScan, are_disjoint
from analytics.query.scans import (
    Answer,
    CachedRowsScan,
    CountScan,
    DuckDBScan,
    in_order,
)
from analytics.statistics.cardinality import FEW_ROWS_MAX, CardinalityEstimate
from analytics.statistics.top_values import HeadsOf, SegmentHead, has_heads, heads_of
from analytics.statistics.value_counts import (
    count_by_hour,
    count_by_value,
    countable,
    is_on_kinds,
)
from analytics.statistics.value_index import ValueIndex
from analytics.statistics.zone_maps import is_within, known_counts, prune
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

ORDERED_FROM: Final = 0.4
"""The part of a day's rows from which reading all of them in file order is quicker than to have
DuckDB skip the others and sort."""

_SEQ_MAX: Final = 2**63 - 1

RowScan = CachedRowsScan | DuckDBScan | RowGroupLookup
"""A way to the first rows of a query in its order."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans over what is known of segments. Its methods read statistics and no rows.

    Without `index` no values are known, and without `decoded` no row group is looked up.
    """

    index: ValueIndex | None = None
    decoded: Decoded | None = None
    results: ResultCache | None = None

    def page(
        self, snapshot: Snapshot, query: Query, limit: int, after: Position | None
    ) -> Iterator[RowScan]:
        """The scans of a page, to be run one after the other until it is full.

        Each covers rows that come after all rows of the one before. A scan that is not reached is
        not planned either: nothing is looked up for it.
        """
        estimate, start = self._estimate(snapshot, query), after
        estimate.expect(lambda: in_order(prune(snapshot, query, start), query.order).segments)
        if self.decoded is not None and query.order is Order.NEWEST_FIRST:
            lookup = plan_newest(self.decoded, snapshot, query, after, limit, estimate)
            self._remember_misses(snapshot, estimate)
            if lookup is not None:
                yield lookup
                if lookup.until is None:
                    return
                after = _from(lookup.until, snapshot, after)
        part = prune(snapshot, query, after)
        for days in _windows(part, query, limit, after, estimate):
            window = self._without_misses(part.of_days(days), estimate)
            yield _scan(window, query, estimate, after)

    def rows(self, snapshot: Snapshot, query: Query) -> CachedRowsScan | DuckDBScan:
        """The scan of all rows of `query`, in no order."""
        estimate = self._estimate(snapshot, query)
        pruned = prune(snapshot, query)
        estimate.expect(lambda: pruned.segments)
        part = self._without_misses(pruned, estimate)
        return _scan(part, query, estimate, None)

    def stream(self, snapshot: Snapshot, query: Query) -> Iterator[OrderedScan | DuckDBScan]:
        """The scans of all rows of `query` in its order: one for each day."""
        estimate = self._estimate(snapshot, query)
        part = prune(snapshot, query)
        estimate.expect(lambda: in_order(part, query.order).segments)
        for day in part.days(query.order):
            own = _matching(part.of_days([day]), estimate)
            if own.is_empty:
                continue
            rows = estimate.total(own.segments)
            held = sum(segment.rows for segment in own.segments)
            is_dense = rows is not None and rows >= ORDERED_FROM * held
            if is_dense and not own.batches and are_disjoint(own.segments):
                yield OrderedScan(own, query)
            else:
                yield DuckDBScan(own, query, rows)
        # Once: each time takes as long as there are segments.
        self._remember_misses(part, estimate)

    def count(self, snapshot: Snapshot, query: Query) -> list[CountScan]:
        """The scans whose counts add up to that of `query`."""
        on_event = any(condition.column == "event" for condition in query.conditions)
        return self.count_values(snapshot, query, "event" if on_event else "decision")

    def count_values(self, snapshot: Snapshot, query: Query, column: str) -> list[CountScan]:
        """The scans whose counts by value of `column` add up."""
        part = prune(snapshot, query)
        self._fetch_indexes(part, query, column)
        answers, unknown = self._answers(part.segments, query, part.watermark, column)
        return [*answers, *self._rest(part.with_segments(unknown), query)]

    def heads(
        self, snapshot: Snapshot, query: Query, column: str, read: HeadsOf = heads_of
    ) -> tuple[list[SegmentHead], Snapshot]:
        """The most frequent values of `column` in segments all of which belong to the query.

        `read` reads those of a segment. And the other part of `snapshot`, whose rows have to be
        counted.
        """
        part = prune(snapshot, query)
        if self.index is None or not has_heads(query, column):
            return [], part
        within = [each for each in part.segments if is_within(each, query, part.watermark)]
        self.index.fetch(within)
        known = {each.segment_id: read(self.index, each, query, column) for each in within}
        heads = [head for own in known.values() if own is not None for head in own]
        rest = [each for each in part.segments if known.get(each.segment_id) is None]
        return heads, part.with_segments(rest)

    def over_time(self, snapshot: Snapshot, query: Query, bucket: Bucket) -> list[CountScan]:
        """The scans whose counts by bucket and decision add up.

        Each answer without rows is of one bucket, of segments that cross none of its bounds, or has
        hours.
        """
        part = prune(snapshot, query)
        self._fetch_indexes(part, query, "decision")
        whole: dict[datetime, list[Segment]] = {}
        crossing: list[Segment] = []
        for segment in part.segments:
            start = bucket.start(segment.min_created_at)
            if segment.max_created_at - start < bucket.length:
                whole.setdefault(start, []).append(segment)
            else:
                crossing.append(segment)
        scans: list[CountScan] = []
        for segments in whole.values():
            answers, unknown = self._answers(segments, query, part.watermark, "decision")
            scans += answers
            crossing += unknown
        if bucket is Bucket.HOUR:
            answers, crossing = self._by_hour(crossing, query, part.watermark)
            scans += answers
        return scans + self._rest(part.with_segments(crossing), query)

    def _by_hour(
        self, segments: list[Segment], query: Query, watermark: int
    ) -> tuple[list[CountScan], list[Segment]]:
        """What the indexes say of hours, and the segments of which they do not."""
        if self.index is None or not is_on_kinds(query):
            return [], segments
        self.index.fetch([segment for segment in segments if is_within(segment, query, watermark)])
        answered: list[Segment] = []
        hours: Counter[tuple[datetime, str]] = Counter()
        unknown: list[Segment] = []
        for segment in segments:
            counts = count_by_hour(self.index, segment, query, watermark)
            if counts is None:
                unknown.append(segment)
            else:
                answered.append(segment)
                hours.update(counts)
        decisions: Counter[str] = Counter()
        for (_, decision), rows in hours.items():
            decisions[decision] += rows
        return ([Answer(tuple(answered), decisions, hours)] if answered else []), unknown

    def _answers(
        self, segments: Sequence[Segment], query: Query, watermark: int, column: str
    ) -> tuple[list[CountScan], list[Segment]]:
        """The answer that needs no rows, if any, and the segments of which nothing is known."""
        answered: list[Segment] = []
        counts: Counter[str] = Counter()
        unknown: list[Segment] = []
        for segment in segments:
            own = known_counts(segment, query, watermark, column)
            if own is None and self.index is not None:
                own = count_by_value(self.index, segment, query, watermark, column)
            if own is None:
                unknown.append(segment)
            else:
                answered.append(segment)
                counts.update(own)
        return ([Answer(tuple(answered), counts)] if answered else []), unknown

    def _fetch_indexes(self, part: Snapshot, query: Query, column: str) -> None:
        """Make those indexes local, together, that `_answers` reads one by one."""
        if self.index is not None and not self.index.is_local:
            self.index.fetch(countable(part.segments, query, part.watermark, column))

    def _rest(self, part: Snapshot, query: Query) -> list[CountScan]:
        estimate, pruned = self._estimate(part, query), part
        estimate.expect(lambda: pruned.segments)
        part = self._without_misses(part, estimate)
        return [] if part.is_empty else [_scan(part, query, estimate, None)]

    def _estimate(self, snapshot: Snapshot, query: Query) -> CardinalityEstimate:
        known = None
        if self.results is not None and query.conditions:
            known = self.results.find(snapshot.tenant_id, query.conditions)
        return CardinalityEstimate(self.index, query, known)

    def _without_misses(self, part: Snapshot, estimate: CardinalityEstimate) -> Snapshot:
        matching = _matching(part, estimate)
        self._remember_misses(part, estimate)
        return matching

    def _remember_misses(self, part: Snapshot, estimate: CardinalityEstimate) -> None:
        """Spare the next query with these conditions what was looked up in vain."""
        misses = estimate.take_misses()
        if self.results is not None and misses:
            self.results.add(part.tenant_id, estimate.query.conditions, misses)


def _matching(part: Snapshot, estimate: CardinalityEstimate) -> Snapshot:
    return part.with_segments(estimate.that_may_match(part.segments))


def _scan(
    part: Snapshot, query: Query, estimate: CardinalityEstimate, after: Position | None
) -> CachedRowsScan | DuckDBScan:
    """The scan of `part`: through the cache if its rows are known to be few."""
    rows = estimate.total(part.segments)
    is_few = estimate.is_indexed and rows is not None and rows <= FEW_ROWS_MAX
    if is_few or not part.segments:
        return CachedRowsScan(part, query, rows, after)
    return DuckDBScan(part, query, rows, after)


def _from(instant: datetime, snapshot: Snapshot, after: Position | None) -> Position:
    """The position after all rows that are newer than `instant`, and after `after`."""
    mark = snapshot.watermark if after is None else after.watermark
    # The lookup has only newer rows: all of this very instant, with any seq, are still to come.
    position = Position(mark, instant, _SEQ_MAX)
    if after is not None and (after.created_at, after.seq) < (instant, _SEQ_MAX):
        return after
    return position


def _windows(
    part: Snapshot,
    query: Query,
    limit: int,
    after: Position | None,
    estimate: CardinalityEstimate,
) -> Iterator[Sequence[date]]:
    """The days of `part` in the query's order, as many at a time as a page of `limit` rows needs.

    The day of the position comes alone: it needs a condition under which DuckDB cannot skip.
    """
    days = part.days(query.order)
    segments: dict[date, list[Segment]] = {day: [] for day in days}
    for segment in part.segments:
        segments[segment.day].append(segment)
    journalled = {batch.day for batch in part.batches}

    def rows_of(day: date) -> int | None:
        rows = estimate.total(segments[day])
        # Estimates are of segments: a day with rows in the journal must not be left out.
        return None if rows == 0 and day in journalled else rows

    if after is not None and days[:1] == [utc_day(after.created_at)]:
        yield days[:1]
        days = days[1:]
    yield from day_windows(days, limit, rows_of)


WINDOW_GROWTH: Final = 4
"""Each window is for this many times the days, or the rows, of the one before: 1, 4, 16 …"""


def day_windows(
    days: Sequence[date], wanted: int, rows_of: Callable[[date], int | None]
) -> Iterator[list[date]]:
    """`days` in order, cut into windows that may hold `wanted` rows together.

    `rows_of` says at most how many rows of a day belong to the page (0: it is left out), or None if
    that is unknown; then a window has 1, 4, 16 … days. Nothing is asked of days not reached.
    """
    window: list[date] = []
    rows, is_known, length = 0, True, 1
    for day in days:
        estimated = rows_of(day)
        if estimated == 0:
            continue
        window.append(day)
        rows += estimated or 0
        is_known &= estimated is not None
        if rows >= wanted or (not is_known and len(window) >= length):
            yield window
            window, rows, is_known = [], 0, True
            wanted *= WINDOW_GROWTH
            length *= WINDOW_GROWTH
    if window:
        yield window
