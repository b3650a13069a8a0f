"""The home page, and the overview: the last day at a glance, each part for who may see it all."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from analytics.export.formats import ExportFormat, format_label
from analytics.export.wire import json_objects
from analytics.model.envelopes import (
    ADMIN_EVENTS,
    BlocklistHit,
    CooldownActive,
    InstallAllowed,
    OssFirstParty,
)
from analytics.model.events import Decision
from analytics.model.filters import FILTER_COLUMNS, literal, parse_query
from analytics.model.rows import VerdictSource
from analytics.query.aggregates import TOP_MAX
from analytics.query.summaries import ValueCount
from service.access.callers import Caller, MemberPrincipal
from service.access.roles import Capability
from service.audit.clock_guard import ClockGuard
from service.audit.tenant_log import TenantLog, open_log
from service.ci.providers import job_label
from service.core.errors import NotFound, Unauthenticated
from service.orgs.members import list_owners
from service.pages.audit_page import blueprint
from service.pages.display_names import age, cut, grouped, initials
from service.pages.navigation import may
from service.pages.page import Page, View
from service.pages.rows import CI_SOURCE_PREFIX, LogRow, load_log_rows, pretty_json
from service.pages.services import DashboardServices
from service.pages.state import WINDOWS, PageState, retention_window
from service.pages.streaming import Later
from service.pages.summary_panel import (
    GLANCE_MAX_S,
    Facet,
    SummaryPanel,
    SummaryUnavailable,
    load_facet,
    load_summary_panel,
    or_unavailable,
)
from service.store.organisations import get_org_by_id, list_live_keys
from service.store.tables import Organisation
from service.trust.bindings.repository import BindingCounts, count_active
from service.trust.rejected.rows import count_rejected
from service.web.dependencies import group_of, receives
from service.web.endpoint import Call
from service.web.templates import render_template

home = Blueprint("home", __name__)

for text_filter in (age, cut, format_label, grouped, initials, job_label, literal, pretty_json):
    home.add_app_template_filter(text_filter)


@home.app_template_global()
def export_formats() -> list[ExportFormat]:
    """The formats in which rows can be exported."""
    return list(ExportFormat)


@home.get("/")
@receives(DashboardServices)
async def introduction(services: DashboardServices) -> ResponseReturnValue:
    """Introduce the service, with a link to the organisation for members who are signed in."""
    try:
        caller = await services.sign_in.authenticator.caller(request, VerdictSource.DASHBOARD)
    except Unauthenticated:
        return await render_template("home.html")
    if not isinstance(caller, MemberPrincipal):
        return await render_template("home.html")
    async with services.store.read() as session:
        org = await get_org_by_id(session, caller.tenant_id)
    return await render_template("home.html", org=org)


@home.get("/admin/ui/components")
@receives(DashboardServices)
async def components_page(services: DashboardServices) -> ResponseReturnValue:
    """Show every component of the pages, where the operator wants that: the demo does."""
    if not services.settings.components_page:
        raise NotFound
    return await render_template("components.html")


_INSTALLS: Final = (
    InstallAllowed.event,
    OssFirstParty.event,
    BlocklistHit.event,
    CooldownActive.event,
)


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One step: what to do and why, where, and whether it is done."""

    label: str
    why: str
    href: str
    is_done: bool


async def first_steps(
    services: DashboardServices,
    caller: Caller,
    org: Organisation,
    log: TenantLog,
    bindings: BindingCounts,
) -> list[FirstStep]:
    """The steps for a caller who may take them all; none once installs arrive, and for others."""
    if not may(caller, Capability.ORG_ADMIN, org) or not may(caller, Capability.OIDC_WRITE, org):
        return []
    installs = await or_unavailable(
        log.page(parse_query({"event": list(_INSTALLS)}), 1, time_max_s=GLANCE_MAX_S)
    )
    if isinstance(installs, SummaryUnavailable) or installs.num_rows:
        return []
    async with services.store.read() as session:
        keys = await list_live_keys(session, org, "", "", 1, services.clock())
        owners = await list_owners(session, org, 2)
    return [
        FirstStep(
            "Issue an API key",
            "Your package proxy sends install rows with it.",
            url_for("dashboard_keys.keys_page", slug=org.slug),
            bool(keys),
        ),
        FirstStep(
            "Trust a CI job",
            "Rows of requests with its token then name the job, its run and its repository.",
            url_for("dashboard_create_binding.new_page", slug=org.slug),
            bool(bindings.active),
        ),
        FirstStep(
            "Send the first row",
            "The keys page has a command to try, with the key filled in.",
            url_for("system.docs"),
            is_done=False,
        ),
        FirstStep(
            "Invite a second owner",
            "One owner who is away cannot lock the organisation out.",
            url_for("dashboard_members.members_page", slug=org.slug),
            len(owners) > 1,
        ),
    ]


WINDOW: Final = "24h"
"""The period of this page, as in the audit page's URL."""

LENGTH: Final[timedelta] = WINDOWS[WINDOW]
CHANGES_MAX: Final = 10
OWNERS_MAX: Final = 10
"""How many owners are named to members who lack a capability."""


@dataclass(frozen=True, slots=True)
class _LogParts:
    """The last day of the audit log, and the latest changes, from one snapshot.

    Each part is loaded when the template awaits it; it is SummaryUnavailable if that fails.
    """

    services: DashboardServices
    log: TenantLog
    now: datetime
    state: PageState

    @property
    def view(self) -> View:
        """The parts, of which nothing is loaded yet."""
        blocked = self.state.only("decision", "BLOCKED")
        installs = replace(
            self.state, parameters={**self.state.parameters, "decision": tuple(Decision)}
        )
        jobs = self.state.beginning("actor_source", CI_SOURCE_PREFIX)
        return {
            "state": self.state,
            "all_changes": self._all_changes,
            "summary": Later(self._summary),
            "blocked_packages": Later(lambda: self._facet("package", blocked)),
            "ci_jobs": Later(lambda: self._facet("subject", jobs)),
            "ecosystems": Later(lambda: self._facet("ecosystem", installs)),
            "changes": Later(self._changes),
        }

    @property
    def _all_changes(self) -> PageState:
        """The audit page with every change to the organisation, and nothing else."""
        return PageState({"event": ADMIN_EVENTS}, self.state.path)

    async def _summary(self) -> SummaryPanel | SummaryUnavailable:
        query = parse_query(self.state.as_of(self.now).filters)
        return await load_summary_panel(
            self.services.store, self.log, query, self.now, self.state, ["actor"]
        )

    async def _facet(self, name: str, state: PageState) -> Facet | SummaryUnavailable:
        """The most frequent values of `name` among the rows of `state`."""
        query = parse_query(state.as_of(self.now).filters)
        values = await or_unavailable(
            self.log.values(query, FILTER_COLUMNS[name], TOP_MAX, GLANCE_MAX_S)
        )
        if isinstance(values, SummaryUnavailable):
            return values
        counts = [ValueCount(*value) for value in values]
        return await load_facet(self.services.store, self.log, name, counts, state)

    async def _changes(self) -> list[LogRow] | SummaryUnavailable:
        """The latest changes to the organisation within its retention."""
        query = parse_query(self._all_changes.filters)
        rows = await or_unavailable(self.log.page(query, CHANGES_MAX, time_max_s=GLANCE_MAX_S))
        if isinstance(rows, SummaryUnavailable):
            return rows
        org = self.log.org
        texts = json_objects(rows, org.id)
        return await load_log_rows(self.services, org, texts, self._all_changes, self.now)


@Page(blueprint, "", "overview.html", needs=None, is_streamed=True)
async def overview_page(call: Call[DashboardServices]) -> View:
    """The parts of the overview that the member may see, as of now. Raises StoreUnavailable."""
    services, caller, org, now = call.services, call.caller, call.org, call.services.clock()
    trust, log, owners = None, None, []
    steps: list[FirstStep] = []
    if may(caller, Capability.OIDC_READ, org):
        async with call.read() as session:
            bindings = await count_active(session, org.id, now - LENGTH)
            rejected = await count_rejected(session, org.id, now - LENGTH)
        trust = {"bindings": bindings, "rejected": rejected}
    if may(caller, Capability.AUDIT_READ, org):
        rows = await open_log(services.store, services.audit.lake, org, now)
        last_day = PageState({"last": (WINDOW,)}, url_for("dashboard.audit_page", slug=org.slug))
        log = _LogParts(services, rows, now, last_day).view
        if trust is not None:
            steps = await first_steps(services, caller, org, rows, bindings)
    if trust is None or log is None:
        async with call.read() as session:
            owners = [owner.email for owner in await list_owners(session, org, OWNERS_MAX)]
    refusal = await group_of(ClockGuard).refusal()
    return {
        "retention": retention_window(org, now),
        "role": caller.role if isinstance(caller, MemberPrincipal) else None,
        "trust": trust,  # as `log`, None for those who may not see it
        "log": log,
        "owners": owners,  # some, who could grant access
        "first_steps": steps,
        "prune_refused": None if refusal is None else refusal.why,
    }
