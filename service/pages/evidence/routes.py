"""Routes of the pages about evidence."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from analytics.model.rows import VerdictSource
from service.access.callers import Caller
from service.access.roles import Capability, Role
from service.audit.export_entries import get_export, state_of
from service.pages.evidence.exports_page import load_export_view, load_exports_view
from service.pages.evidence.offer_page import load_offer
from service.pages.evidence.reports_page import VIEWS, load_access_view
from service.pages.navigation import render_page
from service.pages.services import DashboardServices
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
