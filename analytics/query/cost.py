"""Whether a query is expected to read many rows: decided without opening a file.

An estimate that is off costs time and never a row: it decides which queries run first.
"""

from typing import Final

from analytics.model.filters import Condition, Query
from analytics.statistics.value_index import KIND_COLUMNS
from analytics.storage.segment_index import INDEXED_COLUMNS
from analytics.storage.snapshot import Snapshot

MANY_ROWS: Final = 100_000
"""To count so many rows by their values takes some 50 ms of one core."""


def is_long_page(snapshot: Snapshot, query: Query) -> bool:
    """Whether a page may have to look through many rows, for values that no index knows."""
    is_selective = any(map(_is_indexed, query.conditions))
    is_searched = any(each.wanted and each.column not in KIND_COLUMNS for each in query.conditions)
    return is_searched and not is_selective and reads_many(snapshot, query)


def is_long_count(snapshot: Snapshot, query: Query) -> bool:
    """Whether counts, by value or over time, need many rows.

    The catalog and the indexes know the counts of all rows, and those under a condition on a kind.
    """
    are_on_kinds = all(each.column in KIND_COLUMNS for each in query.conditions)
    is_told = are_on_kinds and len(query.conditions) < 2
    return not is_told and reads_many(snapshot, query)


def reads_many(snapshot: Snapshot, query: Query) -> bool:
    """Whether there are many rows between the bounds of `query`."""
    rows = sum(batch.rows for batch in snapshot.batches)
    for segment in snapshot.segments:
        is_before = query.since is not None and segment.max_created_at < query.since
        is_after = query.until is not None and segment.min_created_at >= query.until
        if not (is_before or is_after):
            rows += segment.rows
    return rows > MANY_ROWS


def _is_indexed(condition: Condition) -> bool:
    is_exact = bool(condition.wanted) and not any(term.is_prefix for term in condition.wanted)
    return is_exact and condition.column in INDEXED_COLUMNS
