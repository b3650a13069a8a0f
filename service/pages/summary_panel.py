"""What pages count of rows: how many over time, the most frequent values, groups of equal ones."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

import structlog
from quart import url_for

from analytics.model.errors import StoreFault
from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, Query, parse_query
from analytics.model.instants import format_us
from analytics.query.aggregates import Group
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts, ValueCount
from service.audit.actor_names import names_of_actors
from service.audit.refusals import QUERY_REFUSALS
from service.audit.tenant_log import TenantLog
from service.core.errors import StoreUnavailable
from service.pages.display_names import NAMED_FILTERS, may_be_named, value_in_words
from service.pages.state import PageState
from service.store.store import Store

GLANCE_MAX_S: Final = 3.0
"""How long the rows wait for their summary, which is less important than they are."""

_FEW_DAYS: Final = 3

TITLES: Final = {
    "decision": "Decision",
    "event": "Event",
    "package": "Package",
    "version": "Version",
    "subject": "CI job or subject",
    "actor": "Key or person",
    "ecosystem": "Ecosystem",
}
"""The facets by filter, in their order."""

_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)

BARS_MAX: Final = 64
HEIGHT: Final = 100
"""Height of the drawing in its own units; the page scales it."""

_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday: weeks begin there
_STEPS: Final = tuple(
    [timedelta(minutes=minutes) for minutes in (1, 5, 15)]
    + [timedelta(hours=hours) for hours in (1, 3, 6, 12)]
    + [timedelta(days=days) for days in (1, 2, 7, 28, 91, 364, 3_640)]
)
_INSTANT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """The rows from `start` on for one step.

    Heights are in units of the drawing: of allowed and other rows on the scale of `most`, and of
    blocked rows on their own scale, as a spike of them is lost among a thousand times more others.
    """

    start: datetime
    until: datetime
    allowed: int
    blocked: int
    other: int
    allowed_height: int
    other_height: int
    blocked_height: int
    narrow: str
    """The link to only these rows."""

    @property
    def total(self) -> int:
        """All rows of the bar."""
        return self.allowed + self.blocked + self.other


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars without gaps, oldest first.

    `most` is the top of the scale of allowed and other rows, `most_blocked` that of blocked ones:
    round numbers that no bar exceeds, 0 without such rows.
    """

    bars: list[Bar]
    step: timedelta
    most: int
    most_blocked: int

    @property
    def edges(self) -> list[str]:
        """The start of each bar and the end of the last one, as in a URL."""
        ends = [bar.until for bar in self.bars[-1:]]
        return [_text(instant) for instant in (*(bar.start for bar in self.bars), *ends)]

    @property
    def is_by_day(self) -> bool:
        """Whether the bars' starts differ by date, so that no time is shown."""
        return self.step >= timedelta(days=1)


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A frequent value in words, its rows and their share of all, and links.

    `only` leads to the rows with it, `exclude` to all others; None if that is this page again, or
    an empty one.
    """

    value: str
    text: str
    count: int
    share: int
    is_blocked: bool
    only: str | None
    exclude: str | None


@dataclass(frozen=True, slots=True)
class Facet:
    """The most frequent values of the filter `name`."""

    name: str
    title: str
    values: list[FacetValue]


@dataclass(frozen=True, slots=True)
class SummaryPanel:
    """The summary. `other` counts rows without an install decision."""

    total: int
    histogram: Histogram
    blocked: FacetValue
    allowed: FacetValue
    other: int
    facets: list[Facet]


class SummaryUnavailable(StrEnum):
    """Why there is no summary."""

    SLOW = "slow"
    DAMAGED = "damaged"


def facets_of(state: PageState) -> list[str]:
    """The filters to show as facets: versions are of use within one package alone."""
    is_one_package = len(state.parameters.get("package", ())) == 1
    omitted = "package" if is_one_package else "version"
    return [name for name in TITLES if name != omitted]


async def load_summary_panel(
    store: Store,
    log: TenantLog,
    query: Query,
    now: datetime,
    state: PageState,
    facets: Sequence[str],
) -> SummaryPanel | SummaryUnavailable:
    """The summary of the rows of `query`, with these facets.

    Does not raise for a lack of time or for damaged files: a part of the page is already sent.
    """
    within = log.within(query)
    bucket = bucket_of(within, now)
    tops = [name for name in facets if name != "decision"]
    summary = await or_unavailable(log.summary(query, bucket, GLANCE_MAX_S, ["decision", *tops]))
    if isinstance(summary, SummaryUnavailable):
        return summary
    buckets: Sequence[BucketCounts] = summary.buckets
    if query.since is None and 0 < len(buckets) <= _FEW_DAYS:
        within, bucket, buckets = await _with_more_bars(log, within, bucket, buckets)
    counted = {decision.value: decision.count for decision in summary.top["decision"]}
    blocked, allowed = counted.get("BLOCKED", 0), counted.get("ALLOWED", 0)
    named = [value for name in NAMED_FILTERS if name in facets for value in summary.top[name]]
    names = await _names(store, log, named)
    words = _Values(state, summary.total, names)
    return SummaryPanel(
        total=summary.total,
        histogram=draw(buckets, bucket, within, state),
        blocked=words.value("decision", ValueCount("BLOCKED", blocked)),
        allowed=words.value("decision", ValueCount("ALLOWED", allowed)),
        other=summary.total - blocked - allowed,
        facets=[words.facet(name, summary.top[name]) for name in facets if summary.top[name]],
    )


async def _with_more_bars(
    log: TenantLog, query: Query, bucket: Bucket, buckets: Sequence[BucketCounts]
) -> tuple[Query, Bucket, Sequence[BucketCounts]]:
    """Shorter buckets of the few days in which all rows of `query` are, as `buckets` say.

    How long that is, is known only once they are counted: a query with all its rows in one day
    would be one bar.
    """
    until = buckets[-1].start + bucket.length
    narrow = replace(
        query, since=buckets[0].start, until=min(until, query.until) if query.until else until
    )
    finer = bucket_of(narrow, until)
    summary = await or_unavailable(log.summary(narrow, finer, GLANCE_MAX_S, ["decision"]))
    if isinstance(summary, SummaryUnavailable):
        return query, bucket, buckets
    return narrow, finer, summary.buckets


async def load_facet(
    store: Store, log: TenantLog, name: str, values: Sequence[ValueCount], state: PageState
) -> Facet:
    """The facet of `values`, which are all there is: shares are of their sum."""
    names = await _names(store, log, values) if name in NAMED_FILTERS else {}
    return _Values(state, sum(value.count for value in values), names).facet(name, values)


async def or_unavailable(answer: Awaitable[_Result]) -> _Result | SummaryUnavailable:
    """The result of `answer`, or why there is none, as a part of the page is already sent."""
    try:
        return await answer
    except InvalidQuery:
        return SummaryUnavailable.SLOW
    except QUERY_REFUSALS:
        return SummaryUnavailable.SLOW
    except (StoreFault, StoreUnavailable) as error:
        _log.error("store_fault", reason=str(error))
        return SummaryUnavailable.DAMAGED


async def _names(store: Store, log: TenantLog, values: Sequence[ValueCount]) -> Mapping[str, str]:
    named = may_be_named(value.value for value in values)
    async with store.read() as session:
        return await names_of_actors(session, log.org.id, named)


@dataclass(frozen=True, slots=True)
class _Values:
    """Shows values among the `total` rows of `state`."""

    state: PageState
    total: int
    names: Mapping[str, str]

    def facet(self, name: str, values: Sequence[ValueCount]) -> Facet:
        """These values of the filter `name`."""
        return Facet(name, TITLES[name], [self.value(name, value) for value in values])

    def value(self, name: str, counted: ValueCount) -> FacetValue:
        """On other pages than the audit page, a value links to its rows, and none to all others."""
        value, count = counted.value, counted.count
        is_audit_page = self.state.path == ""
        narrows = 0 < count < self.total
        return FacetValue(
            value=value,
            text=self._text(name, value),
            count=count,
            share=round(100 * count / self.total) if self.total else 0,
            is_blocked=value in {"BLOCKED", "blocklist_hit", "cooldown_active"},
            only=self.state.only(name, value).href
            if narrows or (count and not is_audit_page)
            else None,
            exclude=self.state.excluding(name, value).href if narrows and is_audit_page else None,
        )

    def _text(self, name: str, value: str) -> str:
        if name == "decision":
            return value.capitalize()
        return value_in_words(name, value, self.names)


GROUPS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SummaryGroup:
    """Rows with equal values: the values, a text for people, and the link to the rows.

    `href` is None if a value is null: no filter finds just these rows.
    """

    values: dict[str, str | None]
    text: str
    rows: int
    blocked: int
    first: datetime
    last: datetime
    href: str | None


async def load_groups(
    store: Store,
    log: TenantLog,
    state: PageState,
    by: Sequence[str],
    now: datetime | None = None,
) -> list[SummaryGroup] | SummaryUnavailable:
    """The largest groups of the rows of `state` with equal values of the filters `by`.

    A state with a window up to `now` needs that.
    """
    query = parse_query((state if now is None else state.as_of(now)).filters)
    columns = [FILTER_COLUMNS[name] for name in by]
    groups = await or_unavailable(log.groups(query, columns, GROUPS_MAX, GLANCE_MAX_S))
    if isinstance(groups, SummaryUnavailable):
        return groups
    is_named = any(name in NAMED_FILTERS for name in by)
    named = may_be_named(value for group in groups for value in group.values) if is_named else ()
    async with store.read() as session:
        names = await names_of_actors(session, log.org.id, named)
    return [_row_group(group, by, state, names) for group in groups]


def of_log(slug: str, **filters: str) -> PageState:
    """The audit page with the rows that have exactly these values."""
    state = PageState({}, url_for("dashboard.audit_page", slug=slug))
    for name, value in filters.items():
        state = state.only(name, value)
    return state


def _row_group(
    group: Group, by: Sequence[str], state: PageState, names: dict[str, str]
) -> SummaryGroup:
    values = dict(zip(by, group.values, strict=True))
    for name, value in values.items():
        if value:
            state = state.only(name, value)
    text = " ".join(value_in_words(name, value, names) for name, value in values.items() if value)
    return SummaryGroup(
        values=values,
        text=text or "none",
        rows=group.rows,
        blocked=group.blocked,
        first=group.first,
        last=group.last,
        href=state.href if all(values.values()) else None,
    )


def bucket_of(query: Query, now: datetime) -> Bucket:
    """The buckets to request: the longest that are no longer than a bar."""
    if query.since is None:
        return Bucket.DAY
    # Not `query.since + _INSTANT`, which would overflow for the last possible instant.
    length = max((query.until or now) - query.since, _INSTANT)
    step = _step(length)
    return max((each for each in Bucket if each.length <= step), key=lambda each: each.length)


def draw(
    buckets: Sequence[BucketCounts], bucket: Bucket, query: Query, state: PageState
) -> Histogram:
    """The histogram of a summary's `buckets`; each bar links to `state` limited to its time."""
    if not buckets:
        return Histogram([], bucket.length, 0, 0)
    length = buckets[-1].start - buckets[0].start + bucket.length
    step = max(_step(length), bucket.length)
    sums: dict[datetime, list[int]] = {}
    for counted in buckets:
        counts = sums.setdefault(_start(counted.start, step), [0, 0, 0])
        for place, rows in enumerate((counted.blocked, counted.allowed, counted.other)):
            counts[place] += rows
    most = _round_up(max(allowed + other for _, allowed, other in sums.values()))
    most_blocked = _round_up(max(blocked for blocked, _, _ in sums.values()))
    scales = most, most_blocked
    bars = [_bar(start, step, counts, scales, query, state) for start, counts in sums.items()]
    return Histogram(bars, step, most, most_blocked)


def _bar(
    start: datetime,
    step: timedelta,
    counts: list[int],
    scales: tuple[int, int],
    query: Query,
    state: PageState,
) -> Bar:
    """A bar, whose window is clipped to the query's: its link must not widen the query."""
    since = max(start, query.since or start)
    end = _end(start, step)
    until = min(end, query.until or end)
    blocked, allowed, other = counts
    most, most_blocked = scales
    return Bar(
        start=since,
        until=until,
        allowed=allowed,
        blocked=blocked,
        other=other,
        allowed_height=_height(allowed, most),
        other_height=_height(allowed + other, most) - _height(allowed, most),
        blocked_height=_height(blocked, most_blocked),
        narrow=state.between(_text(since), _text(until)).href,
    )


def _height(rows: int, most: int) -> int:
    """The height of `rows` on a scale up to `most`. Few rows are still visible."""
    return max(round(HEIGHT * rows / most), 2) if rows else 0


def _round_up(rows: int) -> int:
    """The next number of the form 1, 2, 4 or 5 times a power of ten: half of it is round, too."""
    scale = 10 ** max(len(str(rows)) - 1, 0)
    return next(scale * step for step in (1, 2, 4, 5, 10) if scale * step >= rows) if rows else 0


def _step(length: timedelta) -> timedelta:
    """The shortest step of which BARS_MAX cover `length`, wherever the first one begins."""
    return next((step for step in _STEPS if length / step <= BARS_MAX - 1), _STEPS[-1])


def _start(instant: datetime, step: timedelta) -> datetime:
    try:
        return _EPOCH + (instant - _EPOCH) // step * step
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _end(start: datetime, step: timedelta) -> datetime:
    try:
        return start + step
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _text(instant: datetime) -> str:
    return format_us(instant).replace(".000000Z", "Z")
