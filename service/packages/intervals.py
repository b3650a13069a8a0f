"""Sets of versions as intervals, and the first of many sets that contains a version.

A version is its sort key, of any type that compares with those of its ecosystem.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

Cut = tuple[Any, int]
"""A place between versions: BEFORE or AFTER the version with this key."""

Interval = tuple[Cut, Cut]
"""The versions from one cut up to another."""

BEFORE: Final = 0
_AT: Final = 1
AFTER: Final = 2
FIRST: Final[Cut] = ((), BEFORE)
LAST: Final[Cut] = ((inf,), BEFORE)
"""Before and after all versions: keys are tuples that begin with a number."""

EVERYTHING: Final[Interval] = (FIRST, LAST)


class IntervalIndex:
    """The first of several sets that contains a version, found by one binary search.

    All sets are merged into one sorted list of cuts once. So a look-up costs the same for one set
    as for thousands, and many look-ups do not multiply with many sets.
    """

    def __init__(self, sets: Sequence[Iterable[Interval]]) -> None:
        """The number of a set is its place in `sets`."""
        changes: dict[Cut, list[tuple[int, int]]] = {}
        for number, intervals in enumerate(sets):
            for start, end in intervals:
                changes.setdefault(start, []).append((number, 1))
                changes.setdefault(end, []).append((number, -1))
        self._cuts: list[Cut] = []
        self._firsts: list[int | None] = []
        self._sweep(changes, len(sets))

    def _sweep(self, changes: dict[Cut, list[tuple[int, int]]], sets: int) -> None:
        """Note at which cuts the first set changes."""
        open_intervals = [0] * sets
        waiting: list[int] = []
        for cut in sorted(changes):
            for number, change in changes[cut]:
                open_intervals[number] += change
                if change > 0:
                    heappush(waiting, number)
            while waiting and not open_intervals[waiting[0]]:
                heappop(waiting)
            first = waiting[0] if waiting else None
            if first != (self._firsts[-1] if self._firsts else None):
                self._cuts.append(cut)
                self._firsts.append(first)

    def __len__(self) -> int:
        """How many cuts there are."""
        return len(self._cuts)

    def first(self, key: Any) -> int | None:  # noqa: ANN401 - as in a Cut
        """The number of the first set that contains the version with this key, or None."""
        place = bisect_right(self._cuts, (key, _AT)) - 1
        return self._firsts[place] if place >= 0 else None


def contains(intervals: Iterable[Interval], key: Any) -> bool:  # noqa: ANN401 - as in a Cut
    """True if one of `intervals` has the version with this key."""
    return any(start <= (key, _AT) < end for start, end in intervals)
