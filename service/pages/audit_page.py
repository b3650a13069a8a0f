"""The audit page: a page of rows and their summary, read once each from the same snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from analytics.model.filters import VALUES_MAX, InvalidQuery, Order, Query
from service.audit.actor_names import names_of_actors
from service.audit.query_service import parse_page_request
from service.audit.refusals import QUERY_REFUSALS, QueryTooSlow
from service.audit.saved_searches import list_searches
from service.audit.tenant_log import TenantLog, open_log
from service.audit.unknown_values import UnknownValue, unknown_values
from service.core.errors import Invalid
from service.pages.chips import Chip, active_chips, named_by
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.rows import RowContext, ShownRow, decoded_entries, named_in, shown_row
from service.pages.services import DashboardServices
from service.pages.state import CHARS_MAX, ROWS_DEFAULT, WINDOWS, State
from service.pages.streaming import Later
from service.pages.summary_panel import (
    SummaryPanel,
    SummaryUnavailable,
    facets_of,
    load_summary_panel,
    or_unavailable,
)
from service.store.lost_segments import Loss, losses_within
from service.store.tables import Organisation, SavedSearch


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no rows are shown. `name` is the parameter to correct, if it is about one.

    `is_slow` says that a shorter window would help.
    """

    status: int
    text: str
    name: str | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """A page of rows; `summary` is loaded after what precedes it is sent.

    `live` is the query for rows accepted from now on, if they belong on top of these. `unknown`
    are values that no row has, looked up if there is no row; None if that could not be done.
    `losses` are segments of the days in the window that were given up.
    """

    rows: list[ShownRow]
    is_oldest_first: bool
    older: str | None
    newer: str | None
    live: str | None
    summary: Later[SummaryPanel | SummaryUnavailable]
    unknown: list[UnknownValue] | None
    losses: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True)
class AuditView:
    """The template's data: `results`, or a `fault` instead."""

    now: datetime
    state: State
    chips: list[Chip]
    windows: dict[str, str]
    export_query: str
    without_fault: str
    retention: RetentionWindow
    searches: Sequence[SavedSearch]
    search: str = ""
    results: Results | None = None
    fault: Fault | None = None

    @property
    def status(self) -> int:
        """The HTTP status: a script must be able to tell a fault from rows."""
        return 200 if self.fault is None else self.fault.status

    @property
    def carried(self) -> list[tuple[str, str]]:
        """The form's hidden fields: all current filters except the faulty one."""
        faulty = None if self.fault is None else self.fault.name
        return [(name, value) for name, value in self.state.carried if name != faulty]


_TOO_LONG: Final = (
    f"at most {VALUES_MAX} filter values of {CHARS_MAX} characters together in one address"
)


@dataclass(slots=True)
class _Draft:
    """What is known so far of a view."""

    results: Results | None = None
    fault: Fault | None = None
    actors: Mapping[str, str] = field(default_factory=dict)


async def load_audit_view(
    services: DashboardServices,
    org: Organisation,
    state: State,
    search: str = "",
    search_fault: InvalidQuery | None = None,
) -> AuditView:
    """The data of the page with this state, as of now. Raises StoreFault, StoreUnavailable.

    `search` is a text that was not understood, because of `search_fault`.
    """
    now = services.clock()
    retention = retention_window(org, now)
    draft = _Draft()
    if search_fault is not None:
        draft.fault = Fault(Invalid.status, str(search_fault), search_fault.field)
    elif state.is_too_long:
        state, draft.fault = State({}), Fault(Invalid.status, _TOO_LONG)
    exact = state.as_of(now)
    if draft.fault is None:
        await _load(services, org, state, now, draft)
    fault = draft.fault
    return AuditView(
        now=now,
        state=state,
        chips=active_chips(state, draft.actors),
        windows=_windows(state, retention),
        export_query=urlencode(exact.filters, doseq=True),
        without_fault=state.without_invalid(None if fault is None else fault.name).href,
        retention=retention,
        searches=await _searches(services, org),
        search=search,
        results=draft.results,
        fault=fault,
    )


async def _load(
    services: DashboardServices, org: Organisation, state: State, now: datetime, draft: _Draft
) -> None:
    """Add the rows to `draft`, or why there are none."""
    try:
        await _find(services, org, state, now, draft)
    except (InvalidQuery, Invalid) as error:
        name = error.field if error.field in state.given else None
        draft.fault = Fault(Invalid.status, str(error), name)
    except QUERY_REFUSALS as error:
        draft.fault = Fault(error.status, error.text, is_slow=isinstance(error, QueryTooSlow))


async def _find(
    services: DashboardServices, org: Organisation, state: State, now: datetime, draft: _Draft
) -> None:
    """Raises InvalidQuery, Invalid, QueryTooSlow."""
    state.check_window()
    exact = state.as_of(now)
    wanted = parse_page_request({"limit": [ROWS_DEFAULT], **exact.asked})
    query = wanted.query
    log = await open_log(services.store, services.audit.lake, org, now)
    page = await services.audit.queries.page(org, wanted, now, log)
    entries = decoded_entries(page.entries)
    actors = named_by(state.given) | named_in(entries)
    async with services.store.read() as session:
        draft.actors = await names_of_actors(session, org.id, actors)
    context = RowContext(state, draft.actors, services.bindings.issuers.values(), now)
    newer = exact.newer()
    within = log.within(query)
    draft.results = Results(
        rows=[shown_row(entry, context) for entry in entries],
        is_oldest_first=query.order is Order.OLDEST_FIRST,
        older=None if page.next_cursor is None else exact.older(page.next_cursor).href,
        newer=None if newer is None else newer.href,
        live=state.live(log.snapshot.watermark).href if state.is_live else None,
        summary=Later(
            lambda: load_summary_panel(services.store, log, query, now, state, facets_of(state))
        ),
        unknown=[] if entries or not query.conditions else await _unknown(log, wanted.query),
        losses=await losses_within(services.store, org.id, within.since, within.until),
    )


async def _searches(services: DashboardServices, org: Organisation) -> Sequence[SavedSearch]:
    async with services.store.read() as session:
        return await list_searches(session, org.id)


async def _unknown(log: TenantLog, query: Query) -> list[UnknownValue] | None:
    unknown = await or_unavailable(unknown_values(log, query))
    return None if isinstance(unknown, SummaryUnavailable) else unknown


def _windows(state: State, retention: RetentionWindow) -> dict[str, str]:
    """The windows within the organisation's retention, and their links."""
    return {
        name: state.within(name).href
        for name, length in WINDOWS.items()
        if retention.days is None or length <= timedelta(days=retention.days)
    }
