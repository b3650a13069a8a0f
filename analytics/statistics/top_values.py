"""Finds the most frequent values of many segments together, from their indexes.

The threshold algorithm (Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware",
2001): the head of each segment names its most frequent values and bounds all others. Values are
taken in the order of the most rows that they can have, and looked up in the segments whose head
does not name them, until no other value can reach the least of the answer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Final

from analytics.model.filters import Condition, Query, Term
from analytics.statistics.value_index import ValueIndex
from analytics.storage.segment_index import HEAD_COLUMNS, Head
from analytics.storage.segment_metadata import Segment

LOOKUPS_MAX: Final = 300
"""Lookups of a value in a segment, 0.1 ms each at first, before reading the rows is quicker."""


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


def has_heads(query: Query, column: str) -> bool:
    """True if heads may tell the most frequent values of `column` in the rows of `query`."""
    on_other = any(condition.column != "decision" for condition in query.conditions)
    return column in HEAD_COLUMNS and not on_other


def heads_of(
    index: ValueIndex, segment: Segment, query: Query, column: str
) -> list[SegmentHead] | None:
    """The heads of `column` over the rows of `segment` that are in `query`; None if unknown."""
    entry = index.column(segment, column)
    if entry is None or entry.head is None:
        return None
    if not query.conditions:
        return [SegmentHead(entry.head, partial(_count, index, segment, column, _is_any))]
    return [
        SegmentHead(head, partial(_count, index, segment, column, partial(eq, decision)))
        for decision, head in entry.heads
        if all(condition.is_met(decision) for condition in query.conditions)
    ]


def top_values(
    heads: Sequence[SegmentHead], counted: Mapping[str, int], number: int
) -> list[tuple[str, int]] | None:
    """The `number` most frequent values of all rows behind `heads`, and of those `counted`.

    Most frequent first, of equals the one that sorts first; no empty text. None if values are too
    near each other for LOOKUPS_MAX lookups to tell.
    """
    others_max = sum(segment.head.others_max for segment in heads)
    lookups = 0
    ranked: list[tuple[int, str]] = []
    for value, rows, most in _by_most_rows(heads, counted, others_max):
        # A value that may be as frequent as the last one of the answer could sort before it.
        if len(ranked) == number and most < -ranked[-1][0]:
            break
        if rows < most:
            silent = [head for head in heads if not head.names(value)]
            lookups += len(silent)
            if lookups > LOOKUPS_MAX:
                return None
            for head in silent:
                own = head.count(value)
                if own is None:
                    return None
                rows += own
        ranked = sorted([*ranked, (-rows, value)])[:number]
    least = -ranked[-1][0] if len(ranked) == number else 0
    # A value that no head names could still belong to the answer.
    if others_max and others_max >= least:
        return None
    return [(value, -rows) for rows, value in ranked]


def _by_most_rows(
    heads: Sequence[SegmentHead], counted: Mapping[str, int], others_max: int
) -> Iterator[tuple[str, int, int]]:
    """Each value that is named, its rows where it is, and the most that it can have.

    Those that can have most come first.
    """
    rows: defaultdict[str, int] = defaultdict(int, counted)
    unnamed: defaultdict[str, int] = defaultdict(lambda: others_max)
    for segment in heads:
        for value, count in segment.head.values:
            rows[value] += count
            unnamed[value] -= segment.head.others_max
    rows.pop("", None)
    most = {value: count + unnamed[value] for value, count in rows.items()}
    for value in sorted(rows, key=most.__getitem__, reverse=True):
        yield value, rows[value], most[value]


def _count(
    index: ValueIndex,
    segment: Segment,
    column: str,
    is_counted: Callable[[str | None], bool],
    value: str,
) -> int | None:
    term = Term(value, is_prefix=False, is_negated=False)
    counts = index.count(segment, Condition(column, (term,)))
    if counts is None:
        return None
    counted = zip(counts.kinds, counts.rows, strict=True)
    return sum(rows for kind, rows in counted if is_counted(kind.decision))


def _is_any(decision: str | None) -> bool:
    return True
