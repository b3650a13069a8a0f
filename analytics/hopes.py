"""How many rows of one query each segment may hold, and what follows from that for a page."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date

from analytics.filters import Query
from analytics.segments import ROW_GROUP_ROWS, Segment
from analytics.values import ValueIndex, learnable

Hoped = defaultdict[date, float]


class Hopes:
    """What `index` (None: nothing) knows of `query`; looked up once for each segment."""

    def __init__(self, index: ValueIndex | None, query: Query) -> None:
        self._index = index if learnable(query) else None
        self._query = query
        self._rows: dict[str, int | None] = {}

    def rows(self, segment: Segment) -> int | None:
        """See `ValueIndex.at_most`."""
        if self._index is None:
            return None
        if segment.segment_id not in self._rows:
            self._rows[segment.segment_id] = self._index.at_most(segment, self._query)
        return self._rows[segment.segment_id]

    def promising(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Those of `segments` that are not known to hold no row of the query."""
        return tuple(segment for segment in segments if self.rows(segment) != 0)

    def learn_more(self, segments: Iterable[Segment]) -> None:
        """Have the index learn what it does not know of `segments`, for the next query."""
        if self._index is not None:
            self._index.want((s for s in segments if self.rows(s) is None), self._query)

    def are_rare(self, segments: Sequence[Segment], wanted: int, groups: int) -> bool:
        """True if the newest `groups` row groups are known to hold fewer than `wanted` rows.

        Not if there are no more row groups than these: a look at them is a look at all.
        """
        hoped = 0.0
        for segment in sorted(segments, key=lambda one: one.day, reverse=True):
            rows = self.rows(segment)
            if rows is None:
                return False
            if rows == 0:
                continue
            here = math.ceil(segment.rows / ROW_GROUP_ROWS)
            hoped += rows * min(here, groups) / here
            groups -= here
            if hoped >= wanted or groups < 0:
                return hoped < wanted
        return False

    def by_day(self, segments: Iterable[Segment], density: float | None) -> Hoped | None:
        """How many rows to hope for from each day of `segments`, or None: no telling.

        What is known says how many at most; for the rest `density` guesses: the part of the rows
        looked at so far that were in the query. Of that, half: a window too many costs more than
        a few days too many.
        """
        hoped: Hoped = defaultdict(float)
        for segment in segments:
            rows = self.rows(segment)
            if rows is None and density is None:
                return None
            hoped[segment.day] += segment.rows * (density or 0) / 2 if rows is None else rows
        return hoped
