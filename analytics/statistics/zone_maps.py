"""What the catalog alone can tell: which segments cannot hold a row, and which counts are exact.

It is decided from statistics, without opening a file.
"""

from collections.abc import Iterable
from dataclasses import replace

from analytics.model.cursors import Position
from analytics.model.filters import Condition, Order, Query
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot


def prune(snapshot: Snapshot, query: Query, after: Position | None = None) -> Snapshot:
    """`snapshot` without the parts that cannot hold a row of `query` after `after`."""
    mark = snapshot.watermark
    return replace(
        snapshot,
        segments=tuple(s for s in snapshot.segments if may_match(s, query, mark, after)),
        batches=tuple(b for b in snapshot.batches if may_be_within(b, query, mark, after)),
    )


def may_match(
    segment: Segment, query: Query, watermark: int, after: Position | None = None
) -> bool:
    """False only if no row of `segment` up to `watermark` is in `query` behind `after`."""
    return may_be_within(segment, query, watermark, after) and all(
        any(_meanings_met(condition, value) for value in counts)
        for condition in query.conditions
        if (counts := _counts(segment, condition.column)) is not None
    )


def is_within(segment: Segment, query: Query, watermark: int) -> bool:
    """True if every row of `segment` is within the query's bounds and the watermark."""
    return (
        segment.max_seq <= watermark
        and (query.since is None or segment.min_created_at >= query.since)
        and (query.until is None or segment.max_created_at < query.until)
    )


def known_counts(
    segment: Segment, query: Query, watermark: int, column: str
) -> dict[str, int] | None:
    """How many rows of `segment` in `query` have each value of `column`; None if unknown.

    Known if the catalog counts `column`, every row lies within the query's bounds and the
    watermark, and nothing but `column` itself still decides which rows are in.
    """
    counts = _counts(segment, column)
    if counts is None or not is_within(segment, query, watermark):
        return None
    deciding = [
        condition for condition in query.conditions if not _is_met_by_all(condition, segment)
    ]
    if any(condition.column != column for condition in deciding):
        return None
    if any(len(_meanings(condition, value)) > 1 for condition in deciding for value in counts):
        return None
    return {
        value: rows
        for value, rows in counts.items()
        if all(_meanings_met(condition, value) for condition in deciding)
    }


def matched_rows(segment: Segment, condition: Condition) -> int:
    """An upper bound of the rows of `segment` that meet `condition`, on a counted column."""
    counts = _counts(segment, condition.column) or {}
    return sum(rows for value, rows in counts.items() if _meanings_met(condition, value))


def _is_met_by_all(condition: Condition, segment: Segment) -> bool:
    counts = _counts(segment, condition.column)
    return counts is not None and all(_meanings(condition, value) == {True} for value in counts)


def may_be_within(
    rows: Segment | JournalBatch, query: Query, watermark: int, after: Position | None
) -> bool:
    """False only if no row up to `watermark` is within the query's bounds and behind `after`."""
    if rows.min_seq > (watermark if after is None else min(watermark, after.watermark)):
        return False
    if query.since is not None and rows.max_created_at < query.since:
        return False
    if query.until is not None and rows.min_created_at >= query.until:
        return False
    if after is None:
        return True
    if query.order is Order.NEWEST_FIRST:
        return (rows.min_created_at, rows.min_seq) < (after.created_at, after.seq)
    return (rows.max_created_at, rows.max_seq) > (after.created_at, after.seq)


def _counts(segment: Segment, column: str) -> dict[str, int] | None:
    return {"event": segment.event_counts, "decision": segment.decision_counts}.get(column)


def _meanings_met(condition: Condition, value: str) -> bool:
    # Of "", which may be null, see `_meanings`.
    return condition.is_met(value) or (not value and condition.is_met(None))


def _meanings(condition: Condition, value: str) -> set[bool]:
    """What the condition says of a counted value; of "" it may say two things: it is null, too."""
    meant: Iterable[str | None] = (value,) if value else ("", None)
    return {condition.is_met(meaning) for meaning in meant}
