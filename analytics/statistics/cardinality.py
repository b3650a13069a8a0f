"""How many rows of one query each segment may hold, and what follows from that for a page."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

from analytics.model.filters import Condition, Query
from analytics.statistics.dictionary import KIND_COLUMNS
from analytics.statistics.value_index import Lookup, ValueIndex, learnable
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import ROW_GROUP_ROWS

FEW_ROWS_MAX: Final = 512
"""Rows that are few enough to be found all of them, and kept."""

Hoped = defaultdict[date, float]


class Hopes:
    """What `index` (None: nothing) knows of `query`; looked up once for each segment."""

    def __init__(self, index: ValueIndex | None, query: Query) -> None:
        self._index = index if learnable(query) else None
        self._lookup = None if self._index is None else Lookup(self._index, query)
        self._query = query
        self._rows: dict[str, int | None] = {}

    def rows(self, segment: Segment) -> int | None:
        """See `Lookup.at_most`."""
        if self._lookup is None:
            return None
        if segment.segment_id not in self._rows:
            self._rows[segment.segment_id] = self._lookup.at_most(segment)
        return self._rows[segment.segment_id]

    def promising(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Those of `segments` that are not known to hold no row of the query."""
        return tuple(segment for segment in segments if self.rows(segment) != 0)

    def learn_more(self, segments: Iterable[Segment]) -> None:
        """Have the index learn what it does not know of `segments`, for the next query."""
        if self._index is not None:
            unknown = [segment for segment in segments if self.rows(segment) is None]
            self._index.want(unknown, {one.column for one in learnable(self._query)})

    def few(self, segments: Sequence[Segment]) -> tuple[Condition, ...] | None:
        """Conditions of the query that few rows of `segments` are known to meet (None: no such).

        One alone if it will do: its rows then serve the same search with other filters, too.
        """
        lookup = self._lookup
        if lookup is None:
            return None
        on_kinds = tuple(one for one in self._query.conditions if one.column in KIND_COLUMNS)
        for others in [(), on_kinds] if on_kinds else [()]:
            for one in learnable(self._query):
                if _are_few(lookup.rows_alike(segment, one, others) for segment in segments):
                    return (one, *others)
        return None

    def are_rare(
        self, segments: Sequence[Segment], wanted: int, groups: int, groups_read: int
    ) -> bool:
        """True if the newest `groups` row groups are not the place to look for `wanted` rows.

        They are known to hold fewer, or so few that their files are sooner searched than more
        than `groups_read` row groups are read.
        """
        hoped, held = 0.0, []
        left = groups
        for segment in sorted(segments, key=lambda one: one.day, reverse=True):
            rows = self.rows(segment)
            if rows is None:
                return False
            if rows == 0:
                continue
            here = math.ceil(segment.rows / ROW_GROUP_ROWS)
            hoped += rows * min(here, left) / here
            left -= here
            held.append(segment)
            if left < 0 and hoped < wanted:
                return True
            if left < 0 or hoped >= wanted:
                break
        return groups - left > groups_read and self.few(held) is not None

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


def _are_few(counts: Iterable[int | None]) -> bool:
    total = 0
    for rows in counts:
        total += FEW_ROWS_MAX + 1 if rows is None else rows
        if total > FEW_ROWS_MAX:
            return False
    return True
