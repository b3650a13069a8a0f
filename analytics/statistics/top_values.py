"""The most frequent values of many segments together, from the heads that their indexes keep.

The threshold algorithm (Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware",
2001): each segment names its most frequent values and bounds all others. The sums are exact once
no value outside the answer can reach the least of it. Where that cannot be shown, rows are read.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from analytics.model.filters import Query
from analytics.statistics.value_index import ValueIndex
from analytics.storage.segment_index import HEAD_COLUMNS, Head
from analytics.storage.segment_metadata import Segment


def has_heads(query: Query, column: str) -> bool:
    """True if heads may tell the most frequent values of `column` in the rows of `query`."""
    on_other = any(condition.column != "decision" for condition in query.conditions)
    return column in HEAD_COLUMNS and not on_other


def heads_of(
    index: ValueIndex, segment: Segment, query: Query, column: str
) -> Sequence[Head] | None:
    """The heads of `column` over the rows of `segment` that are in `query`; None if unknown."""
    entry = index.column(segment, column)
    if entry is None or entry.head is None:
        return None
    if not query.conditions:
        return [entry.head]
    return [
        head
        for decision, head in entry.heads
        if all(condition.is_met(decision) for condition in query.conditions)
    ]


def top_values(
    heads: Sequence[Head], counted: Mapping[str, int], number: int
) -> list[tuple[str, int]] | None:
    """The `number` most frequent values of all rows behind `heads`, and of those `counted`.

    Most frequent first, of equals the one that sorts first; no empty text. None if the values are
    too near each other for the heads to tell.
    """
    rows: defaultdict[str, int] = defaultdict(int, counted)
    named: defaultdict[str, int] = defaultdict(int)
    for head in heads:
        for value, count in head.values:
            rows[value] += count
            named[value] += head.others_max
    bound = sum(head.others_max for head in heads)
    rows.pop("", None)
    # Exact are the values that every head names, but for those that leave no value out.
    exact = {value: count for value, count in rows.items() if named[value] == bound}
    ranked = sorted(exact.items(), key=lambda counted: (-counted[1], counted[0]))[:number]
    if bound == 0:
        return ranked
    least = ranked[-1][1] if len(ranked) == number else 0
    others = (count + bound - named[value] for value, count in rows.items() if value not in exact)
    # One that may be as frequent as the least of the answer might sort before it.
    is_shown = bound < least and all(most < least for most in others)
    return ranked if is_shown else None
