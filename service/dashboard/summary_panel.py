"""What the audit page says before its rows: how many there are, when, and of what most."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import structlog

from analytics.model.errors import StoreFault
from analytics.model.filters import InvalidQuery, Query
from analytics.query.summaries import ValueCount
from analytics.storage.snapshot import Snapshot
from service.dashboard.histogram import Histogram, bucket_of, draw
from service.dashboard.labels import event_words
from service.dashboard.state import State
from service.errors import QueryTooSlow, StoreUnavailable
from service.lake import Lake

GLANCE_MAX_S: Final = 3.0
"""How long the rows wait for their summary; they are worth more than their number."""

_TOPS: Final = ("package", "actor", "event")
_Found = TypeVar("_Found")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopValue:
    """A frequent value in words, its rows, and the links to them and to all others.

    A link is None when it would lead to this page, or to an empty one.
    """

    value: str
    text: str
    count: int
    only: str | None
    exclude: str | None


@dataclass(frozen=True, slots=True)
class SummaryPanel:
    """All of it. `other` are the rows without an install decision; `tops` is by filter."""

    total: int
    histogram: Histogram
    blocked: TopValue
    allowed: TopValue
    other: int
    tops: dict[str, list[TopValue]]


class SummaryUnavailable(StrEnum):
    """Why there is none."""

    SLOW = "slow"
    DAMAGED = "damaged"


async def load_summary_panel(
    lake: Lake,
    rows_now: Snapshot,
    query: Query,
    floor: datetime | None,
    now: datetime,
    state: State,
) -> SummaryPanel | SummaryUnavailable:
    """The summary of the rows of `query` as the page shows it.

    Never raises for want of time or for damaged files: the rows beside it are sent already.
    """
    within = query.not_before(floor)
    bucket = bucket_of(within, now)
    found = await if_found(lake.summary(rows_now, query, floor, bucket, GLANCE_MAX_S))
    if isinstance(found, SummaryUnavailable):
        return found
    counted = {one.value: one.count for one in found.top["decision"]}
    blocked, allowed = counted.get("BLOCKED", 0), counted.get("ALLOWED", 0)
    return SummaryPanel(
        total=found.total,
        histogram=draw(found.buckets, bucket, within, state),
        blocked=top_value("decision", ValueCount("BLOCKED", blocked), state, found.total),
        allowed=top_value("decision", ValueCount("ALLOWED", allowed), state, found.total),
        other=found.total - blocked - allowed,
        tops={
            name: [top_value(name, one, state, found.total) for one in found.top[name]]
            for name in _TOPS
        },
    )


async def if_found(answer: Awaitable[_Found]) -> _Found | SummaryUnavailable:
    """What `answer` comes to, or why nothing: what stands before it on the page is sent already."""
    try:
        return await answer
    except (QueryTooSlow, InvalidQuery):
        return SummaryUnavailable.SLOW
    except (StoreFault, StoreUnavailable) as error:
        _log.error("store_fault", reason=str(error))
        return SummaryUnavailable.DAMAGED


def top_value(name: str, one: ValueCount, state: State, total: int) -> TopValue:
    """The value `one` of the filter `name` among the `total` rows of `state`.

    From another page every value leads to its rows, and none to all others.
    """
    is_here = state.path == ""
    narrows = 0 < one.count < total
    return TopValue(
        value=one.value,
        text=event_words(one.value) if name == "event" else one.value,
        count=one.count,
        only=state.only(name, one.value).href if narrows or (one.count and not is_here) else None,
        exclude=state.excluding(name, one.value).href if narrows and is_here else None,
    )
