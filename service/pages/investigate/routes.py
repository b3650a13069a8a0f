"""Routes of the pages about one row, CI run or package."""

from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.audit.searches import saved
from service.pages.investigate.package_page import load_package_view
from service.pages.investigate.row_page import load_row_view
from service.pages.investigate.run_page import load_run_view
from service.pages.navigation import may, page_context, render_page
from service.pages.page import bind_form
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


def _audit_page(slug: str, search: saved.SavedSearchForm) -> str:
    """The audit page with the filters of a search."""
    return f"{url_for('dashboard.audit_page', slug=slug)}?{search.query}"


bind_form(blueprint, f"{_ORG}/audit/searches", "save", saved.create, _audit_page)
bind_form(
    blueprint,
    f"{_ORG}/audit/searches/<search_id>/delete",
    "delete",
    saved.delete,
    lambda slug, _: url_for("dashboard.audit_page", slug=slug),
)
