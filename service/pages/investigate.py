"""The pages about one row, one CI run and one package."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from analytics.export.wire import json_objects
from analytics.model.filters import FILTER_COLUMNS, Condition, Query, Term, only, parse_query
from analytics.model.rows import Ecosystem
from service.access.roles import Capability
from service.audit import saved_searches
from service.audit.query_service import find_entry
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.pages.groups import ShownGroup, load_groups, of_log
from service.pages.navigation import may, page_context, render_page
from service.pages.page import bind_form
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.rows import Pivot, ShownRow, pretty_json
from service.pages.services import DashboardServices
from service.pages.shown_rows import load_shown_rows
from service.pages.state import State
from service.pages.streaming import Later, streamed
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.tables import Organisation
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


def _audit_page(slug: str, search: saved_searches.SavedSearchForm) -> str:
    """The audit page with the filters of a search."""
    return f"{url_for('dashboard.audit_page', slug=slug)}?{search.query}"


bind_form(blueprint, f"{_ORG}/audit/searches", "save", saved_searches.create, _audit_page)
bind_form(
    blueprint,
    f"{_ORG}/audit/searches/<search_id>/delete",
    "delete",
    saved_searches.delete,
    lambda slug, _: url_for("dashboard.audit_page", slug=slug),
)


Groups = list[ShownGroup] | SummaryUnavailable


@dataclass(frozen=True, slots=True)
class PackageView:
    """The page's data; `jobs` and `actors` are loaded after the versions are sent."""

    name: str
    ecosystem: str | None
    state: State
    versions: Groups
    jobs: Later[Groups]
    actors: Later[Groups]
    retention: RetentionWindow

    @property
    def policy_ecosystem(self) -> str | None:
        """The ecosystem to ask the policy about, None if no row names one."""
        if self.ecosystem is not None or isinstance(self.versions, SummaryUnavailable):
            return self.ecosystem
        ecosystems = (group.values["ecosystem"] for group in self.versions)
        return next((ecosystem for ecosystem in ecosystems if ecosystem), None)

    @property
    def totals(self) -> dict[str, Any]:
        """The number of rows and blocked rows of the versions, and when the first and last were."""
        groups = [] if isinstance(self.versions, SummaryUnavailable) else self.versions
        return {
            "rows": sum(group.rows for group in groups),
            "blocked": sum(group.blocked for group in groups),
            "first": min((group.first for group in groups), default=None),
            "last": max((group.last for group in groups), default=None),
        }


async def load_package_view(
    services: DashboardServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> PackageView:
    """The view of the package `name`, of one `ecosystem` if given. Raises Invalid, StoreFault."""
    name, ecosystem = only(parameters, "name"), only(parameters, "ecosystem")
    if not name:
        raise Invalid("name must be a package's name", field="name")
    if ecosystem is not None and ecosystem not in set(Ecosystem):
        known = ", ".join(sorted(Ecosystem))
        raise Invalid(f"ecosystem must be one of {known}", field="ecosystem")
    state = of_log(org.slug, package=name)
    if ecosystem is not None:
        state = state.only("ecosystem", ecosystem)
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    store = services.store
    return PackageView(
        name=name,
        ecosystem=ecosystem,
        state=state,
        versions=await load_groups(store, log, state, ["ecosystem", "version"]),
        jobs=Later(lambda: load_groups(store, log, state, ["subject"])),
        actors=Later(lambda: load_groups(store, log, state, ["actor"])),
        retention=retention_window(org, now),
    )


@dataclass(frozen=True, slots=True)
class RowView:
    """The page's data. `pivots` lead to the rows with the same values, and are counted later."""

    row: ShownRow
    json: str
    pivots: Later[list[Pivot]]
    retention: RetentionWindow


async def load_row_view(services: DashboardServices, org: Organisation, audit_id: str) -> RowView:
    """The view of the row `audit_id`. Raises AuditRowNotFound, StoreFault, QueryTooSlow."""
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    text = await find_entry(log, audit_id)
    (row,) = await load_shown_rows(services, org, [text], of_log(org.slug), now)
    pivots = Later(lambda: count_pivots(log, row.pivots))
    return RowView(row, pretty_json(row.entry), pivots, retention_window(org, now))


async def count_pivots(log: TenantLog, pivots: list[Pivot]) -> list[Pivot]:
    """`pivots` with their numbers of rows within the retention, where they can be counted."""
    counted = []
    for pivot in pivots:
        term = Term(pivot.value, is_prefix=False, is_negated=False)
        query = Query(conditions=(Condition(FILTER_COLUMNS[pivot.name], (term,)),))
        count = await or_unavailable(log.count(query, GLANCE_MAX_S))
        known = None if isinstance(count, SummaryUnavailable) else count
        counted.append(replace(pivot, count=known))
    return counted


@dataclass(frozen=True, slots=True)
class RunView:
    """The page's data. `latest` is the run's newest row, which tells its job; None: no rows."""

    run_id: str
    state: State
    latest: ShownRow | None
    packages: list[ShownGroup] | SummaryUnavailable
    retention: RetentionWindow


async def load_run_view(
    services: DashboardServices, org: Organisation, parameters: Mapping[str, list[str]]
) -> RunView:
    """The view of the run `run_id`, of one repository if `repository_id` is given.

    Raises Invalid, StoreFault, QueryTooSlow.
    """
    run_id, repository_id = only(parameters, "run_id"), only(parameters, "repository_id")
    if not run_id:
        raise Invalid("run_id must be the id of a CI run", field="run_id")
    state = of_log(org.slug, run_id=run_id)
    if repository_id:
        state = state.only("repository_id", repository_id)
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    newest = await log.page(parse_query(state.filters), 1)
    texts = json_objects(newest, org.id)
    shown = await load_shown_rows(services, org, texts, of_log(org.slug), now)
    by = ["ecosystem", "package", "version"]
    packages = await load_groups(services.store, log, state, by)
    return RunView(run_id, state, next(iter(shown), None), packages, retention_window(org, now))
