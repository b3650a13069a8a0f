"""The audit page: a page of rows and their summary, read once each from the same snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from quart import Blueprint, redirect, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import (
    BOUND_PARAMETERS,
    FILTER_COLUMNS,
    VALUES_MAX,
    Condition,
    InvalidQuery,
    Order,
    Query,
    literal,
    only,
    parse_query,
    parse_term,
)
from analytics.model.labels import EVENT_LABELS, FILTER_LABELS
from analytics.model.schema import FILTER_PARAMETERS
from service.access.roles import Capability
from service.audit.actor_names import names_of_actors
from service.audit.query_service import parse_page_request
from service.audit.refusals import QUERY_REFUSALS, QueryTooSlow
from service.audit.saved_searches import list_searches
from service.audit.search import SEARCH, Search, merged, read_search, reader_for
from service.audit.tenant_log import TenantLog, open_log
from service.audit.unknown_values import UnknownValue, unknown_values
from service.ci.providers import CI_LABELS
from service.core.errors import Invalid, Refusal
from service.pages.display_names import active_chips, named_by, value_chips
from service.pages.exports import count_guarded
from service.pages.page import Page, PageCall, View, page_get
from service.pages.rows import (
    CI_SOURCE_PREFIX,
    RowContext,
    decoded_entries,
    log_row,
    named_in,
)
from service.pages.state import (
    CHARS_MAX,
    COLUMNS,
    ROWS_DEFAULT,
    WINDOWS,
    PageState,
    parse_state,
    retention_window,
)
from service.pages.streaming import Later
from service.pages.summary_panel import (
    GLANCE_MAX_S,
    SummaryUnavailable,
    facets_of,
    load_summary_panel,
    or_unavailable,
)
from service.store.lost_segments import losses_within
from service.web.models import ParsedQuery, Request
from service.web.responses import json_answer

blueprint = Blueprint("dashboard", __name__, url_prefix="/admin/ui/orgs/<slug>")

ACTOR_SOURCES: Final = (
    f"{CI_SOURCE_PREFIX}*",
    *(f"{CI_SOURCE_PREFIX}{provider}" for provider in CI_LABELS),
    "api_key",
    "machine_token",
    "session",
    "admin_token",
    "system",
)
"""Completions of `actor_source`."""

FILTERS: Final = sorted(FILTER_PARAMETERS, key=lambda parameter: parameter.field.place)
"""The filters in the order of their fields in the form."""

PREFIX_NOUNS: Final = [parameter.noun for parameter in FILTER_PARAMETERS if parameter.takes_prefix]
"""What the form calls the columns whose filters take a prefix."""

COMPLETED: Final = tuple(
    parameter.name for parameter in FILTER_PARAMETERS if parameter.field.is_completed
)
"""The filters whose values are looked up; the others have few values."""

PREFIX_CHARS_MAX: Final = 1_024
COMPLETIONS_MAX: Final = 20
COMPLETION_MAX_S: Final = 1.0
"""Later suggestions would be useless to a user who is typing."""

_UNREADABLE: Final[tuple[type[Exception], ...]] = (InvalidQuery, *QUERY_REFUSALS)

_TOO_LONG: Final = (
    f"at most {VALUES_MAX} filter values of {CHARS_MAX} characters together in one address"
)


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
class AuditQuery:
    """The page's state, and the text of its search; an empty one is none.

    `is_form` if a form sent it, with empty fields or a list as several values.
    """

    state: PageState
    search: list[str]
    is_form: bool

    @classmethod
    def parse(cls, parameters: Mapping[str, Sequence[str]]) -> "AuditQuery":
        """Those of a URL. The form sends an empty search if only other fields are used."""
        state = parse_state({n: values for n, values in parameters.items() if n != SEARCH})
        is_form = len(parameters.get("columns", ())) > 1 or "" in parameters.get("since", ())
        search = [text for text in parameters.get(SEARCH, ()) if text.strip()]
        return cls(state, search, is_form)


@Page(
    blueprint,
    "/audit",
    "audit.html",
    needs=Capability.AUDIT_READ,
    query=ParsedQuery(Struct, AuditQuery.parse, checks_names=True),
    is_streamed=True,
)
async def audit_page(call: PageCall, query: AuditQuery) -> View | ResponseReturnValue:
    """The audit log, filtered, newest first, with a summary. Raises StoreFault, StoreUnavailable.

    A search redirects to the page with its filters: these are in the address, the search is not,
    and neither are the empty fields of its form.
    """
    state, text, fault = query.state, query.search[0] if query.search else "", None
    try:
        if (asked := only({SEARCH: query.search}, SEARCH)) is not None:
            search = await read_search(call.services.audit, call.org, call.caller, asked)
            return redirect(_search_target(call.org.slug, state, search, asked), 303)
    except InvalidQuery as error:
        fault = Fault(Invalid.status, str(error), error.field)
    except QUERY_REFUSALS as error:
        fault = _refused(error)
    else:
        if query.is_form and not state.is_too_long:
            return redirect(url_for("dashboard.audit_page", slug=call.org.slug) + state.href, 303)
    if fault is None and state.is_too_long:
        state, fault = PageState({}), Fault(Invalid.status, _TOO_LONG)
    now = call.services.clock()
    results = None
    if fault is None:
        results, fault = await _results_or_fault(call, state, now)
    faulty = None if fault is None else fault.name
    retention = retention_window(call.org, now)
    async with call.read() as session:
        searches = await list_searches(session, call.org.id, is_sql=False)
    names = {} if results is None else results["actors"]
    page = {
        "now": now,
        "state": state,
        "chips": active_chips(state, names),
        "package": {} if fault else _package_of(state),
        "readings": [] if fault else await _readings(call, state, names),
        "carried": [(name, value) for name, value in state.carried if name != faulty],
        "windows": {
            name: state.within(name).href
            for name, length in WINDOWS.items()
            if retention["days"] is None or length <= timedelta(days=retention["days"])
        },
        "export_query": urlencode(state.as_of(now).filters, doseq=True),
        "without_fault": state.without_invalid(faulty).href,
        "retention": retention,
        "searches": searches,
        "window": _window_words(state),
        "search": text,
        "results": results,
        "fault": fault,
    }
    return {
        "page": page,
        "status": 200 if fault is None else fault.status,  # a script can tell a fault from rows
        "event_names": EVENT_LABELS,
        "actor_sources": ACTOR_SOURCES,
        "completed": COMPLETED,
        "columns": COLUMNS,
        "filter_labels": FILTER_LABELS,
        "filters": FILTERS,
        "prefix_nouns": PREFIX_NOUNS,
    }


def _search_target(slug: str, state: PageState, search: Search, text: str) -> str:
    """The address of what the search `text` asks for."""
    if search.row_id is not None:
        return url_for("dashboard_investigate.row_page", slug=slug, audit_id=search.row_id)
    page = url_for("dashboard.audit_page", slug=slug)
    shown = None if all(word.as_typed for word in search.words) else text
    return page + state.searched(merged(state.filters_and_window, search), shown).href


def _package_of(state: PageState) -> dict[str, str]:
    """The parameters of the page of the one package that the filters name; empty for others."""
    named = {}
    for name, key in (("package", "name"), ("version", "version")):
        terms = [parse_term(name, value) for value in state.parameters.get(name, ())]
        if len(terms) == 1 and not terms[0].is_prefix and not terms[0].is_negated:
            named[key] = terms[0].text
    return named if "name" in named else {}


async def _readings(call: PageCall, state: PageState, names: Mapping[str, str]) -> list[View]:
    """The words of the search that say something else than the active filters they were read as.

    Each has the chips of these, and links to what else it may mean: to rows of exactly its text,
    and to those of versions that it does not mean, too.
    """
    if state.search is None:
        return []
    try:
        search = await read_search(call.services.audit, call.org, call.caller, state.search)
    except _UNREADABLE:
        return []
    return [
        {
            "text": word.text,
            "chips": list(value_chips(state, word.filters, names)),
            "exact": state.instead(word.filters, {"package": [literal(word.text)]}).href,
            "all_versions": state.instead(word.filters, word.all_versions).href
            if word.all_versions
            else None,
        }
        for word in search.words
        if not word.as_typed
        and all({*values} <= {*state.parameters.get(n, ())} for n, values in word.filters.items())
    ]


async def _results_or_fault(
    call: PageCall, state: PageState, now: datetime
) -> tuple[dict[str, Any] | None, Fault | None]:
    """The rows, or why there are none."""
    try:
        return await _results(call, state, now), None
    except (InvalidQuery, Invalid) as error:
        name = error.field if error.field in state.parameters else None
        return None, Fault(Invalid.status, str(error), name)
    except QUERY_REFUSALS as error:
        return None, _refused(error)


def _refused(error: Refusal) -> Fault:
    return Fault(error.status, error.text, is_slow=isinstance(error, QueryTooSlow))


async def _results(call: PageCall, state: PageState, now: datetime) -> dict[str, Any]:
    """A page of rows; `summary` is loaded after what precedes it is sent, and so is `guarded`.

    `guarded` is how many package names a file of CSV would change.

    `live` is the query for rows accepted from now on, if they belong on top of these. `unknown`
    are values that no row has, looked up if there is no row; None if that could not be done.
    `losses` are segments of the days in the window that were given up. Raises InvalidQuery,
    Invalid, QueryTooSlow.
    """
    services, org = call.services, call.org
    state.check_window()
    exact = state.as_of(now)
    request = parse_page_request({"limit": [ROWS_DEFAULT], **exact.query_parameters})
    query = request.query
    log = await open_log(services.store, services.audit.lake, org, now)
    page = await services.audit.queries.page(org, request, now, log)
    entries = decoded_entries(page.entries)
    async with call.read() as session:
        actors = await names_of_actors(
            session, org.id, named_by(state.parameters) | named_in(entries)
        )
    context = RowContext(state, actors, services.bindings.issuers.values(), now)
    newer = exact.newer()
    within = log.within(query)
    return {
        "rows": [log_row(entry, context) for entry in entries],
        "actors": actors,
        "is_oldest_first": query.order is Order.OLDEST_FIRST,
        "older": None if page.next_cursor is None else exact.older(page.next_cursor).href,
        "newer": None if newer is None else newer.href,
        "live": state.live(log.snapshot.watermark).href if state.is_live else None,
        "summary": Later(
            lambda: load_summary_panel(services.store, log, query, now, state, facets_of(state))
        ),
        "guarded": Later(lambda: count_guarded(log, query, GLANCE_MAX_S)),
        "unknown": [] if entries or not query.conditions else await _unknown(call, log, query),
        "losses": await losses_within(services.store, org.id, within.since, within.until),
    }


async def _unknown(call: PageCall, log: TenantLog, query: Query) -> list[UnknownValue] | None:
    read = reader_for(call.services.audit, call.org, call.caller)
    unknown = await or_unavailable(unknown_values(log, query, read))
    return None if isinstance(unknown, SummaryUnavailable) else unknown


def _window_words(state: PageState) -> str:
    """The window of the page, as its menu is called."""
    if state.last:
        return f"Last {state.last[:-1]} {state.last[-1]}"
    return "Exact time" if state.parameters.keys() & {*BOUND_PARAMETERS} else "All time"


class FilterFieldQuery(Request):
    """What is typed into the field of a filter, and the window of the page."""

    name: str = ""
    prefix: str = ""
    last: str = ""
    since: str = ""
    until: str = ""


@page_get(blueprint, "/audit/values", needs=Capability.AUDIT_READ, query=FilterFieldQuery)
async def filter_values(call: PageCall, query: FilterFieldQuery) -> ResponseReturnValue:
    """Values of the filter `name` that begin with `prefix`, most frequent first, as field texts.

    Only from the requested window, and within the retention of the organisation. Raises
    InvalidQuery, Invalid, QueryTooSlow, StoreFault.
    """
    if query.name not in COMPLETED:
        raise Invalid(f"name must be one of {', '.join(COMPLETED)}", field="name")
    if len(query.prefix) > PREFIX_CHARS_MAX:
        raise Invalid(f"prefix must be at most {PREFIX_CHARS_MAX} characters", field="prefix")
    typed = parse_term(query.name, query.prefix)
    beginning = Condition(
        FILTER_COLUMNS[query.name], (replace(typed, is_prefix=True, is_negated=False),)
    )
    window = {name: [getattr(query, name)] for name in ("last", "since", "until")}
    services, state = call.services, parse_state(window)
    now = services.clock()
    state.check_window()
    within = replace(parse_query(state.as_of(now).filters), conditions=(beginning,))
    log = await open_log(services.store, services.audit.lake, call.org, now)
    values = await log.values(within, beginning.column, COMPLETIONS_MAX, COMPLETION_MAX_S)
    negation = "!" if typed.is_negated else ""
    return json_answer({"values": [f"{negation}{literal(value)}" for value, _ in values]})
