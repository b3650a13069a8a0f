"""The audit page's summary: the number of rows, over time, and their most frequent values."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import structlog

from analytics.model.errors import StoreFault
from analytics.model.filters import InvalidQuery, Query
from analytics.model.labels import event_label
from analytics.query.summaries import ValueCount
from service.audit.tenant_log import TenantLog
from service.dashboard.histogram import Histogram, bucket_of, draw
from service.dashboard.state import State
from service.errors import QueryTooSlow, StoreUnavailable

GLANCE_MAX_S: Final = 3.0
"""How long the rows wait for their summary, which is less important than they are."""

_TOPS: Final = ("package", "actor", "event")
_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopValue:
    """A frequent value in words, its number of rows, and links to these and to all others.

    A link to the current page, or to an empty one, is None.
    """

    value: str
    text: str
    count: int
    only: str | None
    exclude: str | None


@dataclass(frozen=True, slots=True)
class SummaryPanel:
    """The summary. `other` counts rows without an install decision; `tops` is by filter."""

    total: int
    histogram: Histogram
    blocked: TopValue
    allowed: TopValue
    other: int
    tops: dict[str, list[TopValue]]


class SummaryUnavailable(StrEnum):
    """Why there is no summary."""

    SLOW = "slow"
    DAMAGED = "damaged"


async def load_summary_panel(
    log: TenantLog,
    query: Query,
    now: datetime,
    state: State,
) -> SummaryPanel | SummaryUnavailable:
    """The summary of the rows of `query`.

    Does not raise for a lack of time or for damaged files: a part of the page is already sent.
    """
    within = log.within(query)
    bucket = bucket_of(within, now)
    summary = await or_unavailable(log.summary(query, bucket, GLANCE_MAX_S))
    if isinstance(summary, SummaryUnavailable):
        return summary
    counted = {decision.value: decision.count for decision in summary.top["decision"]}
    blocked, allowed = counted.get("BLOCKED", 0), counted.get("ALLOWED", 0)
    return SummaryPanel(
        total=summary.total,
        histogram=draw(summary.buckets, bucket, within, state),
        blocked=top_value("decision", ValueCount("BLOCKED", blocked), state, summary.total),
        allowed=top_value("decision", ValueCount("ALLOWED", allowed), state, summary.total),
        other=summary.total - blocked - allowed,
        tops={
            name: [top_value(name, value, state, summary.total) for value in summary.top[name]]
            for name in _TOPS
        },
    )


async def or_unavailable(answer: Awaitable[_Result]) -> _Result | SummaryUnavailable:
    """The result of `answer`, or why there is none, as a part of the page is already sent."""
    try:
        return await answer
    except (QueryTooSlow, InvalidQuery):
        return SummaryUnavailable.SLOW
    except (StoreFault, StoreUnavailable) as error:
        _log.error("store_fault", reason=str(error))
        return SummaryUnavailable.DAMAGED


def top_value(name: str, counted: ValueCount, state: State, total: int) -> TopValue:
    """The value `counted` of the filter `name` among the `total` rows of `state`.

    On other pages than the audit page, every value links to its rows, and none to all others.
    """
    value, count = counted.value, counted.count
    is_audit_page = state.path == ""
    narrows = 0 < count < total
    return TopValue(
        value=value,
        text=event_label(value) if name == "event" else value,
        count=count,
        only=state.only(name, value).href if narrows or (count and not is_audit_page) else None,
        exclude=state.excluding(name, value).href if narrows and is_audit_page else None,
    )
