"""Estimates how many rows of a query each segment holds, from its index and catalog entry."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from analytics.cache.results import CachedRows
from analytics.model.filters import Query
from analytics.statistics.value_index import KIND_COLUMNS, ValueCounts, ValueIndex
from analytics.statistics.zone_maps import matched_rows
from analytics.storage.segment_index import INDEXED_COLUMNS
from analytics.storage.segment_metadata import Segment

FEW_ROWS_MAX: Final = 512
"""So few rows are all read, and kept in memory."""


class CardinalityEstimate:
    """What the catalog, `index` and already `known` rows say about `query`."""

    def __init__(
        self, index: ValueIndex | None, query: Query, known: CachedRows | None = None
    ) -> None:
        self._index = index
        self.query = query
        self._known = known
        self._on_kinds = [
            condition for condition in query.conditions if condition.column in KIND_COLUMNS
        ]
        self._indexed = [
            condition for condition in query.conditions if condition.column in INDEXED_COLUMNS
        ]
        self._counts: dict[str, list[ValueCounts]] = {}
        self._bounds: dict[str, int | None] = {}
        self._misses: set[str] = set()
        self._ahead: IndexesAhead | None = None

    @property
    def is_indexed(self) -> bool:
        """True if the query has a condition on a column whose values indexes hold."""
        return self._index is not None and bool(self._indexed)

    def expect(self, segments: Callable[[], Sequence[Segment]]) -> None:
        """Announce that the plan will read these segments, in this order, as far as necessary."""
        if self._index is not None and self._indexed and not self._index.is_local:
            self._ahead = IndexesAhead(self._index, segments())

    def rows(self, segment: Segment) -> int | None:
        """An upper bound of the rows of `segment` in the query; None if nothing is known."""
        if self._known is not None and segment.segment_id in self._known.segment_ids:
            return self._known.counts[segment.segment_id]
        if segment.segment_id not in self._bounds:
            rows = self._bounds[segment.segment_id] = self._bound(segment)
            if rows == 0:
                self._misses.add(segment.segment_id)
        return self._bounds[segment.segment_id]

    def take_misses(self) -> set[str]:
        """The ids of segments found since the last call to have no row that meets the conditions.

        Only where indexes were asked: the catalog alone says it as quickly again.
        """
        misses, self._misses = self._misses, set()
        return misses if self.is_indexed else set()

    def _bound(self, segment: Segment) -> int | None:
        bounds = [counts.of_kinds(self._on_kinds) for counts in self.counts(segment)]
        bounds += [matched_rows(segment, condition) for condition in self._on_kinds]
        if not bounds and self.query.conditions:
            return None
        return min(bounds, default=segment.rows)

    def counts(self, segment: Segment) -> list[ValueCounts]:
        """What the index says about each condition that it can answer."""
        if self._index is None:
            return []
        found = self._counts.get(segment.segment_id)
        if found is None:
            if self._ahead is not None:
                self._ahead.reach(segment)
            looked_up = (self._index.count(segment, condition) for condition in self._indexed)
            found = [counts for counts in looked_up if counts is not None]
            self._counts[segment.segment_id] = found
        return found

    def may_be_in(self, segment: Segment, group: int) -> bool:
        """False only if no row of the query is in this row group of `segment`."""
        return all(counts.may_be_in(group) for counts in self.counts(segment))

    def that_may_match(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Those of `segments` that are not known to hold no row of the query."""
        return tuple(segment for segment in segments if self.rows(segment) != 0)

    def total(self, segments: Iterable[Segment]) -> int | None:
        """An upper bound of the rows of `segments` in the query; None if unknown."""
        total = 0
        for segment in segments:
            rows = self.rows(segment)
            if rows is None:
                return None
            total += rows
        return total


FIRST_INDEXES: Final = 16
"""How many indexes are fetched first, concurrently; then twice as many, and so on."""


class IndexesAhead:
    """Fetches the indexes of `segments` as they are reached, in this order, in widening steps.

    A page that ends on its first day needs no index of the following days.
    """

    def __init__(self, index: ValueIndex, segments: Sequence[Segment]) -> None:
        self._index = index
        self._segments = segments
        self._places = {segment.segment_id: place for place, segment in enumerate(segments)}
        self._fetched = 0
        self._step = FIRST_INDEXES

    def reach(self, segment: Segment) -> None:
        """Announce that the index of `segment` is needed next. Raises StoreFault."""
        place = self._places.get(segment.segment_id, -1)
        while place >= self._fetched:
            part = self._segments[self._fetched : self._fetched + self._step]
            self._fetched += len(part)
            self._step *= 2
            self._index.fetch(part)
