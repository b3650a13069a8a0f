"""Exact counts of a query in one segment, by event and decision, from its index."""

from collections import Counter

from analytics.model.filters import Query
from analytics.statistics.value_index import KIND_COLUMNS, ValueIndex, meets
from analytics.statistics.zone_maps import is_within
from analytics.storage.segment_metadata import Segment


def count_by_value(
    index: ValueIndex, segment: Segment, query: Query, watermark: int, column: str
) -> dict[str, int] | None:
    """The rows of `segment` in `query` by event or decision, as `column` says ("" for null).

    None if the index cannot tell exactly: a bound cuts through the segment, or the query has
    conditions on several columns besides event and decision.
    """
    others = [one for one in query.conditions if one.column not in KIND_COLUMNS]
    if column not in KIND_COLUMNS or len(others) > 1 or not is_within(segment, query, watermark):
        return None
    counted = index.count(segment, others[0]) if others else index.count_all(segment)
    if counted is None:
        return None
    on_kinds = [one for one in query.conditions if one.column in KIND_COLUMNS]
    rows_by_value: Counter[str] = Counter()
    for kind, rows in zip(counted.kinds, counted.rows, strict=True):
        if meets(kind, on_kinds):
            rows_by_value[(kind.event if column == "event" else kind.decision) or ""] += rows
    return dict(rows_by_value)
