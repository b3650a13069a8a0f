"""The pages about one row, one CI run and one package."""

from dataclasses import replace
from typing import Annotated, Any, Final

from msgspec import Meta
from quart import Blueprint, url_for
from quart.typing import ResponseReturnValue

from analytics.evidence.notes import Note
from analytics.export.wire import json_objects
from analytics.model.ecosystems import Ecosystem
from analytics.model.events import Decision
from analytics.model.filters import FILTER_COLUMNS, Condition, Query, Term, parse_query
from service.access.roles import Capability
from service.audit import saved_searches
from service.audit.evidence.evidence_api import prove
from service.audit.query_service import find_entry
from service.audit.refusals import NotSignedYet
from service.audit.tenant_log import TenantLog, open_log
from service.packages.ecosystem import InvalidPackageName, Release
from service.packages.names import canonical_name
from service.packages.policy.check import check_release
from service.packages.policy.exceptions import list_exceptions
from service.packages.policy.policy_api import PolicyServices
from service.packages.policy.repository import find_revision
from service.pages.navigation import may
from service.pages.page import FormState, Page, PageCall, View, bind_form, page_get
from service.pages.rows import LogRow, Pivot, load_log_rows, load_newest, pretty_json
from service.pages.state import retention_window
from service.pages.streaming import Later
from service.pages.summary_panel import (
    GLANCE_MAX_S,
    SummaryGroup,
    SummaryUnavailable,
    load_groups,
    load_summary_panel,
    of_log,
    or_unavailable,
)
from service.web.dependencies import group_of
from service.web.models import Request
from service.web.templates import render_template

blueprint = Blueprint("dashboard_investigate", __name__, url_prefix="/admin/ui/orgs/<slug>")

_Text = Annotated[str, Meta(min_length=1)]


class PackageQuery(Request):
    """A package, of one ecosystem or of all that have it; and of its versions the one in doubt."""

    name: _Text
    ecosystem: Ecosystem | None = None
    version: _Text | None = None


THROUGH_MAX: Final = 50
"""How many installs that got through are listed; the audit log lists all."""
_EXCEPTIONS_MAX: Final = 20


@Page(
    blueprint,
    "/packages",
    "package.html",
    needs=Capability.AUDIT_READ,
    query=PackageQuery,
    is_streamed=True,
)
async def package_page(call: PageCall, query: PackageQuery) -> View:
    """One package: who got it, which versions were blocked, and what the policy says of them."""
    services, org = call.services, call.org
    state = of_log(org.slug, package=query.name)
    if query.ecosystem is not None:
        state = state.only("ecosystem", query.ecosystem)
    now, store = services.clock(), services.store
    log = await open_log(store, services.audit.lake, org, now)
    installs = replace(state, parameters={**state.parameters, "decision": tuple(Decision)})
    versions = await load_groups(store, log, installs, ["ecosystem", "version"])
    groups = [] if isinstance(versions, SummaryUnavailable) else versions
    ecosystems = [query.ecosystem, *(group.values["ecosystem"] for group in groups)]
    of_version = installs.only("version", query.version) if query.version else installs
    through = of_version.only("decision", Decision.ALLOWED)
    page = {
        "name": query.name,
        "ecosystem": query.ecosystem,
        "version": query.version,
        "state": state,
        "through": through,
        "through_max": THROUGH_MAX,
        "versions": versions,
        "totals": {
            "rows": sum(group.rows for group in groups),
            "blocked": sum(group.blocked for group in groups),
            "first": min((group.first for group in groups), default=None),
            "last": max((group.last for group in groups), default=None),
        },
        "chart": Later(
            lambda: load_summary_panel(store, log, parse_query(installs.filters), now, installs, [])
        ),
        "installs": Later(lambda: load_newest(services, log, through, THROUGH_MAX, now)),
        "jobs": Later(lambda: load_groups(store, log, of_version, ["subject"])),
        "actors": Later(lambda: load_groups(store, log, of_version, ["actor"])),
        "retention": retention_window(org, now),
        # The one to ask the policy about; None if no row names one.
        **await _policy_on(call, query.name, next(filter(None, ecosystems), None), groups),
    }
    return {"page": page, "form_state": FormState()}


async def _policy_on(
    call: PageCall, name: str, ecosystem: str | None, groups: list[SummaryGroup]
) -> View:
    """What blocks each version now at any age, and requests for exceptions.

    Nothing for callers who may not read the policy, or if no such package can exist.
    """
    view: dict[str, Any] = {"policy_ecosystem": ecosystem, "rules": {}, "exceptions": ()}
    if ecosystem not in set(Ecosystem) or not may(call.caller, Capability.POLICY_READ, call.org):
        return view
    try:
        canonical = canonical_name(Ecosystem(ecosystem), name)
    except InvalidPackageName:
        return view
    on_package = await group_of(PolicyServices).judged(call.org, Ecosystem(ecosystem), canonical)
    for group in groups:
        if group.values["ecosystem"] == ecosystem:
            release = Release(Ecosystem(ecosystem), canonical, group.values["version"] or "")
            verdict = check_release(on_package, release, call.services.clock())
            if verdict.is_blocked:
                view["rules"][group.values["version"]] = verdict.reason
    async with call.read() as session:
        revision = await find_revision(session, call.org.id)
        requests = await list_exceptions(
            session, call.org.id, None, _EXCEPTIONS_MAX, ecosystem=ecosystem, package=canonical
        )
    in_force = 0 if revision is None else revision.revision
    versions = {version: version for group in groups if (version := group.values["version"])}
    choices = [*versions.items(), ("", "every version")]
    return view | {"exceptions": requests, "in_force": in_force, "choices": choices}


async def _row(call: PageCall, audit_id: str) -> tuple[LogRow, Later[list[Pivot]]]:
    """The row `audit_id`, and links to the rows with the same values, which are counted later.

    Raises AuditRowNotFound, StoreFault, QueryTooSlow.
    """
    services, org, now = call.services, call.org, call.services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    text = await find_entry(log, audit_id)
    (row,) = await load_log_rows(services, org, [text], of_log(org.slug), now)
    return row, Later(lambda: count_pivots(log, row.pivots))


@Page(
    blueprint,
    "/audit/<row:audit_id>",
    "row.html",
    needs=Capability.AUDIT_READ,
    is_streamed=True,
)
async def row_page(call: PageCall, audit_id: str) -> View:
    """One audit row, and how many rows share each of its values."""
    row, pivots = await _row(call, audit_id)
    retention = retention_window(call.org, row.context.now)
    page = {"row": row, "json": pretty_json(row.entry), "pivots": pivots, "retention": retention}
    return {"page": page}


@Page(blueprint, "/audit/<row:audit_id>/proof", "proof.html", needs=Capability.AUDIT_READ)
async def proof_page(call: PageCall, audit_id: str) -> View:
    """The proof that a row is in the log, which a script on the page verifies."""
    try:
        proof = await prove(call.services.audit, call.org, audit_id)
    except NotSignedYet:
        return {"audit_id": audit_id, "proof": None}
    note = Note.parse(proof.note)
    origin, _, _ = note.text.partition("\n")
    witnesses = [name for name, _, _ in note.signed_by() if name != origin]
    return {"audit_id": audit_id, "proof": proof, "origin": origin, "witnesses": witnesses}


@page_get(blueprint, "/audit/<row:audit_id>/details", needs=Capability.AUDIT_READ)
async def row_details(call: PageCall, audit_id: str) -> ResponseReturnValue:
    """The details of one row as a part of a page, for the audit page to put below it."""
    (row, pivots), slug = await _row(call, audit_id), call.org.slug
    return await render_template(
        "row_details.html",
        row=row,
        pivots=await pivots.load(),
        slug=slug,
        bindings_of=slug if may(call.caller, Capability.OIDC_READ, call.org) else None,
    )


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


class RunQuery(Request):
    """A CI run; its id is unique within a repository."""

    run_id: _Text
    repository_id: str = ""


@Page(blueprint, "/runs", "run.html", needs=Capability.AUDIT_READ, query=RunQuery)
async def run_page(call: PageCall, query: RunQuery) -> View:
    """One CI run: its job, and every package that it asked for."""
    services, org, now = call.services, call.org, call.services.clock()
    state = of_log(org.slug, run_id=query.run_id)
    if query.repository_id:
        state = state.only("repository_id", query.repository_id)
    log = await open_log(services.store, services.audit.lake, org, now)
    newest = await log.page(parse_query(state.filters), 1)
    texts = json_objects(newest, org.id)
    rows = await load_log_rows(services, org, texts, of_log(org.slug), now)
    page = {
        "run_id": query.run_id,
        "state": state,
        "latest": next(iter(rows), None),  # which tells its job
        "packages": await load_groups(
            services.store, log, state, ["ecosystem", "package", "version"]
        ),
        "retention": retention_window(org, now),
    }
    return {"page": page}


def _audit_page(slug: str, search: saved_searches.SavedSearchEntry) -> str:
    """The audit page with the filters of a search."""
    return f"{url_for('dashboard.audit_page', slug=slug)}?{search.query}"


bind_form(blueprint, "/audit/searches", "save", saved_searches.create, _audit_page)
bind_form(
    blueprint,
    "/audit/searches/<search_id>/delete",
    "delete",
    saved_searches.delete,
    lambda slug, _: url_for("dashboard.audit_page", slug=slug),
)
