"""Routes of the home page, the overview and the audit page."""

from collections.abc import Mapping, Sequence

from quart import (
    Blueprint,
    Response,
    redirect,
    request,
    stream_with_context,
    url_for,
)
from quart.typing import ResponseReturnValue

from analytics.export.formats import ExportFormat, format_label
from analytics.model.filters import InvalidQuery, literal
from analytics.model.labels import EVENT_LABELS, FILTER_LABELS
from analytics.model.rows import VerdictSource
from service.access.callers import MemberPrincipal
from service.access.roles import Capability
from service.audit.search import SEARCH, Search, merged, search_of
from service.core.errors import NotFound, Unauthenticated
from service.pages.audit_page import load_audit_view
from service.pages.autocomplete import COMPLETED, PARAMETERS, complete
from service.pages.labels import ACTOR_SOURCES, FILTERS, PREFIX_NOUNS, cut, grouped
from service.pages.live import live_events, parse_live
from service.pages.navigation import page_context
from service.pages.overview import load_overview
from service.pages.rows import pretty_json
from service.pages.services import DashboardServices
from service.pages.state import COLUMNS, State, parse_state
from service.pages.streaming import streamed
from service.store.organisations import get_org_by_id
from service.web.dependencies import receives
from service.web.request_parsing import all_parameters, query_parameters, refuse_head
from service.web.responses import json_answer
from service.web.streams import begun
from service.web.templates import render_template

blueprint = Blueprint("dashboard", __name__)

for text_filter in (pretty_json, cut, grouped, literal, format_label):
    blueprint.add_app_template_filter(text_filter)


@blueprint.app_template_global()
def export_formats() -> list[ExportFormat]:
    """The formats in which rows can be exported."""
    return list(ExportFormat)


@blueprint.get("/")
@receives(DashboardServices)
async def home(services: DashboardServices) -> ResponseReturnValue:
    """Introduce the service, with a link to the organisation for members who are signed in."""
    try:
        caller = await services.authenticator.caller(request, VerdictSource.DASHBOARD)
    except Unauthenticated:
        return await render_template("home.html")
    if not isinstance(caller, MemberPrincipal):
        return await render_template("home.html")
    async with services.store.read() as session:
        org = await get_org_by_id(session, caller.tenant_id)
    return await render_template("home.html", org=org)


@blueprint.get("/admin/ui/components")
@receives(DashboardServices)
async def components_page(services: DashboardServices) -> ResponseReturnValue:
    """Show every component of the pages, where the operator wants that: the demo does."""
    if not services.settings.components_page:
        raise NotFound
    return await render_template("components.html")


@blueprint.get("/admin/ui/orgs/<slug>")
@receives(DashboardServices)
async def overview_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show a member the parts of the overview that they may see."""
    caller, org = await services.access.authorize_member(slug)
    query_parameters(request, ())
    return await streamed(
        "overview.html",
        overview=await load_overview(services, caller, org),
        **page_context(services.settings, caller, org),
    )


@blueprint.get("/admin/ui/orgs/<slug>/audit/live")
@receives(DashboardServices)
async def live_rows(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Stream new rows, rendered as on the audit page, until the client disconnects."""
    refuse_head(request)
    caller, org = await services.authorize(slug, Capability.AUDIT_READ, keeps_alive=False)
    wanted = parse_live(
        all_parameters(request), request.headers.get("last-event-id"), services.clock()
    )
    events = await begun(live_events(services, caller, org, wanted))
    response = Response(
        stream_with_context(lambda: events)(),
        content_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )
    response.timeout = None  # Quart's own is a minute
    return response


@blueprint.get("/admin/ui/orgs/<slug>/audit/values")
@receives(DashboardServices)
async def filter_values(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Complete the text typed into a filter of the audit page."""
    _, org = await services.authorize(slug, Capability.AUDIT_READ)
    return json_answer(
        {"values": await complete(services.audit, org, query_parameters(request, PARAMETERS))}
    )


@blueprint.get("/admin/ui/orgs/<slug>/audit")
@receives(DashboardServices)
async def audit_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the organisation's audit log, filtered, newest first, with a summary."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    parameters = all_parameters(request)
    fault, state = None, parse_state({n: v for n, v in parameters.items() if n != SEARCH})
    try:
        search = await search_of(services.store, org, _given_search(parameters))
    except InvalidQuery as error:
        search, fault = None, error
    if search is not None:
        return redirect(_search_target(slug, state, search), 303)
    text = parameters[SEARCH][0] if fault is not None else ""
    view = await load_audit_view(services, org, state, text, fault)
    return await streamed(
        "audit.html",
        view.status,
        page=view,
        event_names=EVENT_LABELS,
        actor_sources=ACTOR_SOURCES,
        completed=COMPLETED,
        columns=COLUMNS,
        filter_labels=FILTER_LABELS,
        filters=FILTERS,
        prefix_nouns=PREFIX_NOUNS,
        **page_context(services.settings, caller, org),
    )


def _given_search(parameters: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The search of the page's form, which sends an empty one if only other fields are used."""
    return {SEARCH: [text for text in parameters.get(SEARCH, ()) if text.strip()]}


def _search_target(slug: str, state: State, search: Search) -> str:
    """The address of what a search asks for: filters are in the address, the search is not."""
    if search.row_id is not None:
        return url_for("dashboard_investigate.row_page", slug=slug, audit_id=search.row_id)
    page = url_for("dashboard.audit_page", slug=slug)
    return page + state.searched(merged(state.filters_and_window, search)).href
