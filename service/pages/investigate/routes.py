"""Routes of the pages about one row, CI run or package."""

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.audit.searches.saved import delete_search, save_search
from service.pages.form_auth import authorize_form
from service.pages.investigate.package_page import load_package_view
from service.pages.investigate.row_page import load_row_view
from service.pages.investigate.run_page import load_run_view
from service.pages.navigation import may, page_context, render_page
from service.pages.services import DashboardServices
from service.pages.streaming import streamed
from service.web.dependencies import receives
from service.web.request_parsing import query_parameters
from service.web.templates import render_template

blueprint = Blueprint("dashboard_investigate", __name__)

_ORG = "/admin/ui/orgs/<slug>"


@blueprint.get(f"{_ORG}/audit/<row:audit_id>")
@receives(DashboardServices)
async def row_page(services: DashboardServices, slug: str, audit_id: str) -> ResponseReturnValue:
    """Show one audit row, and how many rows share each of its values."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    view = await load_row_view(services, org, audit_id)
    return await streamed("row.html", page=view, **page_context(services.settings, caller, org))


@blueprint.get(f"{_ORG}/audit/<row:audit_id>/details")
@receives(DashboardServices)
async def row_details(services: DashboardServices, slug: str, audit_id: str) -> ResponseReturnValue:
    """The details of one row as a part of a page, for the audit page to put below it."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    view = await load_row_view(services, org, audit_id)
    return await render_template(
        "row_details.html",
        row=view.row,
        pivots=await view.pivots.load(),
        slug=slug,
        bindings_of=slug if may(caller, Capability.OIDC_READ, org) else None,
    )


@blueprint.post(f"{_ORG}/audit/searches")
@receives(DashboardServices)
async def save(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Save the search of the audit page under a name, and show it again."""
    caller, org, form = await authorize_form(services, slug, Capability.AUDIT_READ)
    query = form.get("query", "")
    async with services.access.change(caller, org, Capability.AUDIT_READ) as (work, caller, org):
        search = await save_search(
            work, org, form.get("name", ""), query, caller.audit_context.actor
        )
        target = f"{url_for('dashboard.audit_page', slug=slug)}?{search.query}"
    return redirect(target, 303)


@blueprint.post(f"{_ORG}/audit/searches/<search_id>/delete")
@receives(DashboardServices)
async def delete(services: DashboardServices, slug: str, search_id: str) -> ResponseReturnValue:
    """Delete a saved search, and show the audit page."""
    caller, org, _ = await authorize_form(services, slug, Capability.AUDIT_READ)
    async with services.access.change(caller, org, Capability.AUDIT_READ) as (work, caller, org):
        await delete_search(work, org, search_id)
    return redirect(url_for("dashboard.audit_page", slug=slug), 303)


@blueprint.get(f"{_ORG}/packages")
@receives(DashboardServices)
async def package_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show one package: its versions, and the jobs, keys and people that asked for it."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    view = await load_package_view(services, org, query_parameters(request, ("name", "ecosystem")))
    return await streamed("package.html", page=view, **page_context(services.settings, caller, org))


@blueprint.get(f"{_ORG}/runs")
@receives(DashboardServices)
async def run_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show one CI run: its job, and every package it asked for."""
    caller, org = await services.authorize(slug, Capability.AUDIT_READ)
    parameters = query_parameters(request, ("run_id", "repository_id"))
    view = await load_run_view(services, org, parameters)
    return await render_page(services.settings, caller, org, "run.html", page=view)
