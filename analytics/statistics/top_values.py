"""Finds the most frequent values of many segments together, from their indexes.

The threshold algorithm (Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware",
2001): the head of each segment names its most frequent values and bounds all others. Values are
taken in the order of the most rows that they can have, and looked up in the segments whose head
does not name them, until no other value can reach the least of the answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Final

from analytics.model.filters import Query, among
from analytics.statistics.value_index import ValueIndex
from analytics.storage.segment_index import HEAD_COLUMNS, Head
from analytics.storage.segment_metadata import Segment

LOOKUPS_MAX: Final = 300
"""Lookups of a value in a segment, 0.1 ms each at first, before reading the rows is quicker."""


SHORT_LINES_MAX: Final = 512
"""Lines of a column that are read in a third of the time that the rows of a file take."""


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The head of some rows of a segment, and the exact number of those that have a value.

    `count` gives None if the index cannot be read.
    """

    head: Head
    count: Callable[[str], int | None]

    def names(self, value: str) -> bool:
        """True if the head states how many of its rows have `value`."""
        return not self.head.others_max or any(name == value for name, _ in self.head.values)


HeadsOf = Callable[[ValueIndex, Segment, Query, str], list[SegmentHead] | None]
"""See `heads_of`."""


def has_heads(query: Query, column: str) -> bool:
    """True if heads may tell the most frequent values of `column` in the rows of `query`."""
    on_other = any(condition.column != "decision" for condition in query.conditions)
    return column in HEAD_COLUMNS and not on_other


def heads_of(
    index: ValueIndex, segment: Segment, query: Query, column: str
) -> list[SegmentHead] | None:
    """The heads of `column` over the rows of `segment` that are in `query`; None if unknown."""
    entry = index.column(segment, column)
    if entry is None:
        return None
    if not entry.has_heads:
        return all_values(index, segment, query, column) if len(entry.blocks) < 2 else None
    decoded = index.heads(segment, entry)
    if decoded is None:
        return None
    of_all, by_decision = decoded
    if not query.conditions:
        return [SegmentHead(of_all, partial(_count, index, segment, column, lambda _: True))]
    return [
        SegmentHead(head, partial(_count, index, segment, column, partial(eq, decision)))
        for decision, head in by_decision
        if all(condition.is_met(decision) for condition in query.conditions)
    ]


def short_values(
    index: ValueIndex, segment: Segment, query: Query, column: str
) -> list[SegmentHead] | None:
    """`all_values`, or None of a segment whose lines take as long to read as its rows."""
    entry = index.column(segment, column)
    if entry is None or sum(block.lines for block in entry.blocks) > SHORT_LINES_MAX:
        return None
    return all_values(index, segment, query, column)


def all_values(
    index: ValueIndex, segment: Segment, query: Query, column: str
) -> list[SegmentHead] | None:
    """All values in one head: it takes the whole index of the column, one block of short ones."""
    values = index.all_values(segment, column, query.conditions)
    return None if values is None else [SegmentHead(Head(tuple(values.items()), 0), values.get)]


class HeadSum:
    """Heads of many segments, added up: of each value the fewest and the most rows it can have.

    `rows` are those where heads name it; one that none names has at most `others_max`.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.others_max = 0
        self._named: dict[str, int] = {}
        """The sum of `others_max` of the heads that name a value."""

    def copy(self) -> "HeadSum":
        """The same sum, which may then differ."""
        copied = HeadSum()
        copied.rows, copied._named = self.rows.copy(), self._named.copy()
        copied.others_max = self.others_max
        return copied

    def add(self, head: Head, sign: int = 1) -> None:
        """Add `head`; with -1 subtract one that was added."""
        others, rows, named = sign * head.others_max, self.rows, self._named
        self.others_max += others
        for value, count in head.values:
            rows[value] = rows.get(value, 0) + sign * count
            named[value] = named.get(value, 0) + others
            if not rows[value]:  # no head names it any more
                del rows[value], named[value]

    def most(self, value: str) -> int:
        """The most rows that `value` can have."""
        return self.rows.get(value, 0) + self.others_max - self._named.get(value, 0)

    def that_may_have(self, least: int, counted: Mapping[str, int]) -> list[str]:
        """Those values of `counted` that can have `least` rows, with the counted ones."""
        bound, own = least - self.others_max, self.rows
        return [
            value
            for value, rows in counted.items()
            if rows >= bound or (value in own and rows + self.most(value) >= least)
        ]

    def is_exact(self, value: str) -> bool:
        """True if no row has `value` but those that heads name."""
        return self._named.get(value, 0) == self.others_max

    def top(
        self,
        values: Iterable[str],
        counted: Mapping[str, int],
        number: int,
        exact: Callable[[str], int | None],
    ) -> list[tuple[str, int]] | None:
        """The `number` most frequent of `values`, with the rows that are `counted` besides.

        Most frequent first, of equals the one that sorts first; no empty text. `exact` is asked for
        the rows of a value that heads alone do not tell; if it gives None there is no answer.
        """
        by_most = [(self.most(value) + counted.get(value, 0), value) for value in values if value]
        ranked: list[tuple[int, str]] = []
        for most, value in sorted(by_most, reverse=True):
            # A value that may be as frequent as the last one of the answer could sort before it.
            if len(ranked) == number and most < -ranked[-1][0]:
                break
            rows = self.rows.get(value, 0) if self.is_exact(value) else exact(value)
            if rows is None:
                return None
            ranked = sorted([*ranked, (-rows - counted.get(value, 0), value)])[:number]
        return [(value, -rows) for rows, value in ranked]

    def may_hide(self, top: Sequence[tuple[str, int]], number: int) -> bool:
        """True if a value that no head names could belong to the `number` of `top`."""
        least = top[-1][1] if len(top) == number else 0
        return self.others_max > 0 and self.others_max >= least


def top_values(
    heads: Sequence[SegmentHead], counted: Mapping[str, int], number: int
) -> list[tuple[str, int]] | None:
    """The `number` most frequent values of all rows behind `heads`, and of those `counted`.

    See `HeadSum.top`. None if values are too near each other for LOOKUPS_MAX lookups to tell.
    """
    added = HeadSum()
    for segment in heads:
        added.add(segment.head)
    lookups = Lookups(heads, LOOKUPS_MAX)
    top = added.top(
        {**added.rows, **counted},
        counted,
        number,
        lambda value: lookups.rows(value, added.rows.get(value, 0)),
    )
    return None if top is None or added.may_hide(top, number) else top


@dataclass(slots=True)
class Lookups:
    """Looks values up in the segments whose `heads` do not name them, `left` times at most."""

    heads: Sequence[SegmentHead]
    left: int

    def rows(self, value: str, named: int) -> int | None:
        """The rows of `value`, of which heads name `named`; None if the indexes cannot tell."""
        silent = [head for head in self.heads if not head.names(value)]
        self.left -= len(silent)
        if self.left < 0:
            return None
        for head in silent:
            own = head.count(value)
            if own is None:
                return None
            named += own
        return named


def _count(
    index: ValueIndex,
    segment: Segment,
    column: str,
    is_counted: Callable[[str | None], bool],
    value: str,
) -> int | None:
    counts = index.count(segment, among(column, [value]))
    if counts is None:
        return None
    counted = zip(counts.kinds, counts.rows, strict=True)
    return sum(rows for kind, rows in counted if is_counted(kind.decision))
