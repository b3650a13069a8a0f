"""What pages count of rows: how many over time, the most frequent values, groups of equal ones."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import structlog
from quart import url_for

from analytics.model.errors import StoreFault
from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, Query, parse_query
from analytics.query.aggregates import Group
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts, Summary, ValueCount
from service.audit.actor_names import names_of_actors
from service.audit.refusals import QUERY_REFUSALS
from service.audit.tenant_log import TenantLog
from service.ci.providers import named_form
from service.core.errors import StoreUnavailable
from service.packages.policy.model import BLOCKING_REASONS
from service.pages.display_names import NAMED_FILTERS, may_be_named, value_in_words
from service.pages.histogram import Histogram, bucket_of, draw, window_before
from service.pages.state import PageState
from service.store.store import Store

GLANCE_MAX_S: Final = 3.0
"""How long the rows wait for their summary, which is less important than they are."""

_FEW_DAYS: Final = 8

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
    """The summary. `other` are rows without an install decision.

    `before` counts the rows of as long a window before this one, if it is within the retention.
    """

    total: int
    histogram: Histogram
    blocked: FacetValue
    allowed: FacetValue
    other: FacetValue
    facets: list[Facet]
    before: int | None = None

    @property
    def change(self) -> str | None:
        """By how much there are more or fewer rows than before; None without any before."""
        return f"{round(100 * self.total / self.before) - 100:+,} %" if self.before else None


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
    before = None
    if query.since is not None:
        before = await _before(log, within, bucket, now)
    elif 0 < len(buckets) <= _FEW_DAYS:
        within, bucket, buckets = await _with_more_bars(log, within, bucket, buckets)
    counted = {decision.value: decision.count for decision in summary.top["decision"]}
    blocked, allowed = counted.get("BLOCKED", 0), counted.get("ALLOWED", 0)
    named = [value for name in NAMED_FILTERS if name in facets for value in summary.top[name]]
    names = await _names(store, log, named)
    words = _Values(state, summary.total, names)
    return SummaryPanel(
        total=summary.total,
        histogram=draw(buckets, bucket, within, state, before.buckets if before else ()),
        blocked=words.value("decision", ValueCount("BLOCKED", blocked)),
        allowed=words.value("decision", ValueCount("ALLOWED", allowed)),
        other=words.undecided(summary.total - blocked - allowed),
        facets=[words.facet(name, summary.top[name]) for name in facets if summary.top[name]],
        before=before.total if before else None,
    )


async def _before(log: TenantLog, within: Query, bucket: Bucket, now: datetime) -> Summary | None:
    """The rows of the window before; None if there are none, or some are past the retention."""
    before = window_before(within, bucket, now)
    if before is None or (log.floor and before.since and before.since < log.floor):
        return None
    summary = await or_unavailable(log.summary(before, bucket, GLANCE_MAX_S, ["decision"]))
    return None if isinstance(summary, SummaryUnavailable) or not summary.total else summary


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
    store: Store, log: TenantLog, name: str, state: PageState, limit: int
) -> Facet | SummaryUnavailable:
    """The most frequent values of `name` among the rows of `state`; shares are of their sum."""
    found = await or_unavailable(
        log.values(parse_query(state.filters), FILTER_COLUMNS[name], limit, GLANCE_MAX_S)
    )
    if isinstance(found, SummaryUnavailable):
        return found
    values = [ValueCount(*each) for each in found]
    names = await _names(store, log, values)
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
        jobs: dict[str, list[ValueCount]] = {}
        for value in values:
            jobs.setdefault(named_form(value.value), []).append(value)
        shown = [self.value(name, *of_job) for of_job in jobs.values()]
        shown.sort(key=lambda value: -value.count)
        return Facet(name, TITLES[name], _without_owner(shown) if name == "subject" else shown)

    def value(self, name: str, *counted: ValueCount) -> FacetValue:
        """A value, or several that are shown as one: a job whose subjects have ids or not.

        On other pages than the audit page, it links to its rows, and none to all others.
        """
        values, count = [each.value for each in counted], sum(each.count for each in counted)
        is_audit_page = self.state.path == ""
        narrows = 0 < count < self.total
        return FacetValue(
            value=values[0],
            text=self._text(name, values[0]),
            count=count,
            share=round(100 * count / self.total) if self.total else 0,
            is_blocked=values[0] in {"BLOCKED", *BLOCKING_REASONS.values()},
            only=self.state.only(name, *values).href
            if narrows or (count and not is_audit_page)
            else None,
            exclude=self.state.excluding(name, *values).href if narrows and is_audit_page else None,
        )

    def undecided(self, count: int) -> FacetValue:
        """Rows without a decision, for which there is no value: they have neither."""
        none = self.value("decision", ValueCount("", count))
        neither = self.state.excluding("decision", "ALLOWED").excluding("decision", "BLOCKED")
        return replace(none, only=none.only and neither.href, exclude=None)

    def _text(self, name: str, value: str) -> str:
        if name == "decision":
            return value.capitalize()
        return value_in_words(name, value, self.names)


def _without_owner(values: list[FacetValue]) -> list[FacetValue]:
    """CI jobs by their repository's name alone, if all have the same owner."""
    owners = {each.text.partition("/")[0] for each in values if " · " in each.text}
    if len(owners) != 1:
        return values
    return [replace(each, text=each.text.removeprefix(f"{min(owners)}/")) for each in values]


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

    @property
    def is_through(self) -> bool:
        """Whether any of them was not blocked."""
        return self.rows > self.blocked


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
    jobs: dict[tuple[str | None, ...], list[Group]] = {}
    for group in groups:
        key = tuple(value and named_form(value) for value in group.values)
        jobs.setdefault(key, []).append(group)
    return [_group(of_job, by, state, names) for of_job in jobs.values()]


def of_log(slug: str, **filters: str) -> PageState:
    """The audit page with the rows that have exactly these values."""
    state = PageState({}, url_for("dashboard.audit_page", slug=slug))
    for name, value in filters.items():
        state = state.only(name, value)
    return state


def _group(
    groups: Sequence[Group], by: Sequence[str], state: PageState, names: Mapping[str, str]
) -> SummaryGroup:
    """The rows of `groups`: one, or those of one job, whose subjects have ids or not."""
    values = dict(zip(by, groups[0].values, strict=True))
    for place, name in enumerate(by):
        if values[name]:
            state = state.only(name, *dict.fromkeys(group.values[place] or "" for group in groups))
    text = " ".join(value_in_words(name, value, names) for name, value in values.items() if value)
    return SummaryGroup(
        values=values,
        text=text or "none",
        rows=sum(group.rows for group in groups),
        blocked=sum(group.blocked for group in groups),
        first=min(group.first for group in groups),
        last=max(group.last for group in groups),
        href=state.href if all(values.values()) else None,
    )
