"""Routes of the pages about evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.export.csv_json import GUARDED
from analytics.model.filters import Condition, Query, Term, only, parse_query
from analytics.model.rows import VerdictSource
from service.access.callers import Caller
from service.access.roles import Capability, Role
from service.audit.export_entries import get_export, state_of
from service.audit.refusals import QUERY_REFUSALS
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.pages.chips import named_by
from service.pages.display_names import find_names
from service.pages.evidence.exports_page import filter_words, load_export_view, load_exports_view
from service.pages.evidence.reports_page import VIEWS, load_access_view
from service.pages.navigation import render_page
from service.pages.services import DashboardServices
from service.pages.state import parse_state
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.request_parsing import all_parameters, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("dashboard_evidence", __name__, url_prefix="/admin/ui/orgs/<slug>")


@blueprint.get("/exports")
@receives(DashboardServices)
async def exports_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the organisation's exports, newest first."""
    caller, org = await _authorize(services, slug)
    cursor = only(query_parameters(request, ("cursor",)), "cursor")
    view = await load_exports_view(services.audit, org, cursor)
    return await render_page(services.settings, caller, org, "evidence/exports.html", page=view)


@blueprint.get("/exports/new")
@receives(DashboardServices)
async def offer_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show what an export with these filters would hold, with links that make it."""
    caller, org = await services.authorize(slug, Capability.AUDIT_EXPORT)
    offer = await load_offer(services.audit, org, all_parameters(request))
    return await render_page(services.settings, caller, org, "evidence/offer.html", offer=offer)


@blueprint.get("/exports/<export_id>")
@receives(DashboardServices)
async def export_page(
    services: DashboardServices, slug: str, export_id: str
) -> ResponseReturnValue:
    """Show one export, its receipt, and whether a file is the one that was exported."""
    caller, org = await _authorize(services, slug)
    query_parameters(request, ())
    shown = await load_export_view(services.audit, org, export_id)
    return await render_page(services.settings, caller, org, "evidence/export.html", one=shown)


@blueprint.get("/exports/<export_id>/progress")
@receives(DashboardServices)
async def export_progress(
    services: DashboardServices, slug: str, export_id: str
) -> ResponseReturnValue:
    """How far an export is, for its page, which asks every few seconds."""
    _, org = await _authorize(services, slug, keeps_alive=False)
    query_parameters(request, ())
    async with services.store.read() as session:
        entry = await get_export(session, org.id, export_id)
    return json_answer(
        {
            "state": state_of(entry, services.clock()),
            "rows": entry.rows,
            "sent_rows": entry.sent_rows,
        }
    )


@blueprint.get("/reports")
@receives(DashboardServices)
async def reports_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the reports and the views of the audit log."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    return await render_page(services.settings, caller, org, "evidence/reports.html", views=VIEWS)


@blueprint.get("/reports/access")
@receives(DashboardServices)
async def access_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show who could do what, as of a date."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    given = only(query_parameters(request, ("asOf",)), "asOf")
    view = await load_access_view(services.audit, org, given)
    return await render_page(
        services.settings,
        caller,
        org,
        "evidence/access.html",
        view.status,
        page=view,
        roles=list(Role),
    )


async def _authorize(
    services: DashboardServices, slug: str, *, keeps_alive: bool = True
) -> tuple[Caller, Organisation]:
    """The caller and the organisation, if they may read the log or make exports."""
    return await services.access.authorize(
        slug,
        Capability.AUDIT_READ,
        VerdictSource.DASHBOARD,
        alternative=Capability.AUDIT_EXPORT,
        keeps_alive=keeps_alive,
    )


_NAMES_GUARDED: Final = Condition(
    "package_name",
    tuple(
        Term(start, is_prefix=True, is_negated=False) for start in GUARDED if start.isprintable()
    ),
)
"""Package names that CSV's formula guard changes."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The template's data.

    `query` is the export's query string; `cuts_off` says that the floor may hide rows that were
    asked for; `rows` is how many there are, and `guarded` how many of them have a package name that
    CSV's formula guard changes; None: counting took too long.
    """

    query: str
    filters: list[str]
    since: datetime | None
    until: datetime | None
    floor: datetime | None
    cuts_off: bool
    rows: int | None
    guarded: int | None


async def load_offer(
    services: AuditServices, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> Offer:
    """What an export with the filters of an audit page would hold now.

    Raises InvalidQuery, StoreFault.
    """
    now = services.clock()
    state = parse_state(parameters)
    state.check_window()
    given = state.as_of(now).filters
    query = parse_query(given)
    log = await open_log(services.store, services.lake, org, now)
    within = log.within(query)
    time_max_s = services.settings.query_max_s
    guarded = replace(query, conditions=(*query.conditions, _NAMES_GUARDED))
    async with services.store.read() as session:
        names = await find_names(session, org.id, actors=named_by(given))
    return Offer(
        query=urlencode(given, doseq=True),
        filters=filter_words(given, names),
        since=within.since,
        until=within.until,
        floor=log.floor,
        cuts_off=_cuts_off(org, query, log.floor),
        rows=await _count(log, query, time_max_s),
        guarded=await _count(log, guarded, time_max_s),
    )


def _cuts_off(org: Organisation, query: Query, floor: datetime | None) -> bool:
    """Whether rows that the filters match may be hidden by the retention floor."""
    asked_from = org.created_at if query.since is None else query.since
    return floor is not None and asked_from < floor


async def _count(log: TenantLog, query: Query, time_max_s: float) -> int | None:
    try:
        return await log.count(query, time_max_s)
    except QUERY_REFUSALS:
        return None
