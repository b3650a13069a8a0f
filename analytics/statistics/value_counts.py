"""Counts a query's rows in one segment exactly, by event and decision, from its index."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from analytics.model.filters import Condition, Query
from analytics.model.instants import midnight
from analytics.statistics.value_index import KIND_COLUMNS, ValueIndex, meets
from analytics.statistics.zone_maps import is_within, known_counts
from analytics.storage.segment_index import HOURS
from analytics.storage.segment_metadata import Segment


def count_by_value(
    index: ValueIndex, segment: Segment, query: Query, watermark: int, column: str
) -> dict[str, int] | None:
    """The rows of `segment` in `query` by event or decision, as `column` says ("" for null).

    None if the index cannot tell exactly: a bound cuts through the segment, or the query has
    conditions on several columns besides event and decision.
    """
    others = _others(query)
    if not _may_tell(segment, query, watermark, column):
        return None
    counted = index.count(segment, others[0]) if others else index.count_all(segment)
    if counted is None:
        return None
    on_kinds = [condition for condition in query.conditions if condition.column in KIND_COLUMNS]
    rows_by_value: Counter[str] = Counter()
    for kind, rows in zip(counted.kinds, counted.rows, strict=True):
        if meets(kind, on_kinds):
            rows_by_value[(kind.event if column == "event" else kind.decision) or ""] += rows
    return dict(rows_by_value)


def count_by_hour(
    index: ValueIndex, segment: Segment, query: Query, watermark: int
) -> dict[tuple[datetime, str], int] | None:
    """The rows of `segment` in `query`, which `is_on_kinds`, by hour and decision ("" for null).

    None if its index does not say, or a bound cuts through the segment.
    """
    counted = index.count_all(segment) if is_within(segment, query, watermark) else None
    if counted is None or not all(kind.hours for kind in counted.kinds):
        return None
    starts = [midnight(segment.day) + timedelta(hours=hour) for hour in range(HOURS)]
    rows_by_hour: dict[tuple[datetime, str], int] = {}
    for kind in counted.kinds:
        if meets(kind, query.conditions):
            decision = kind.decision or ""
            for start, rows in zip(starts, kind.hours, strict=True):
                if rows:
                    place = start, decision
                    rows_by_hour[place] = rows_by_hour.get(place, 0) + rows
    return rows_by_hour


def is_on_kinds(query: Query) -> bool:
    """True if all conditions of `query` are on events and decisions."""
    return not _others(query)


def countable(
    segments: Iterable[Segment], query: Query, watermark: int, column: str
) -> list[Segment]:
    """Those of `segments` whose index is needed for counting, because the catalog does not say."""
    return [
        segment
        for segment in segments
        if _may_tell(segment, query, watermark, column)
        and known_counts(segment, query, watermark, column) is None
    ]


def _may_tell(segment: Segment, query: Query, watermark: int, column: str) -> bool:
    is_counted = column in KIND_COLUMNS and len(_others(query)) < 2
    return is_counted and is_within(segment, query, watermark)


def _others(query: Query) -> list[Condition]:
    return [condition for condition in query.conditions if condition.column not in KIND_COLUMNS]
