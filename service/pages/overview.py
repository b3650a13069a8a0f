"""The overview: the last day at a glance; each part needs the capability for its details."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from quart import url_for

from analytics.export.wire import json_objects
from analytics.model.envelopes import (
    ADMIN_EVENTS,
    BlocklistHit,
    CooldownActive,
    InstallAllowed,
    OssFirstParty,
)
from analytics.model.events import Decision
from analytics.model.filters import FILTER_COLUMNS, parse_query
from analytics.query.aggregates import TOP_MAX
from analytics.query.summaries import ValueCount
from service.access.callers import Caller, MemberPrincipal
from service.access.roles import Capability, Role
from service.audit.tenant_log import TenantLog, open_log
from service.orgs.members import list_owners
from service.pages.labels import CI_SOURCE_PREFIX
from service.pages.navigation import may
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.rows import ShownRow
from service.pages.services import DashboardServices
from service.pages.shown_rows import load_shown_rows
from service.pages.state import WINDOWS, State
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
from service.store.organisations import list_live_keys
from service.store.tables import Organisation
from service.trust.bindings.repository import BindingCounts, count_active
from service.trust.rejected.rows import count_rejected

_INSTALLS: Final = (
    InstallAllowed.event,
    OssFirstParty.event,
    BlocklistHit.event,
    CooldownActive.event,
)


@dataclass(frozen=True, slots=True)
class Step:
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
) -> list[Step]:
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
        Step(
            "Issue an API key",
            "Your package proxy sends install rows with it.",
            url_for("dashboard_keys.keys_page", slug=org.slug),
            bool(keys),
        ),
        Step(
            "Trust a CI job",
            "Rows of requests with its token then name the job, its run and its repository.",
            url_for("dashboard_trust.new_page", slug=org.slug),
            bool(bindings.active),
        ),
        Step(
            "Send the first row",
            "The keys page has a command to try, with the key filled in.",
            url_for("system.docs"),
            is_done=False,
        ),
        Step(
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
class Trust:
    """The active bindings, and how many CI subjects were rejected in the last day."""

    bindings: BindingCounts
    rejected: int


@dataclass(frozen=True, slots=True)
class LogView:
    """The last day of the audit log, and the latest changes, from one snapshot.

    Each part is loaded when the template awaits it; it is SummaryUnavailable if that fails.
    """

    state: State
    all_changes: State
    summary: Later[SummaryPanel | SummaryUnavailable]
    blocked_packages: Later[Facet | SummaryUnavailable]
    ci_jobs: Later[Facet | SummaryUnavailable]
    ecosystems: Later[Facet | SummaryUnavailable]
    changes: Later[list[ShownRow] | SummaryUnavailable]


@dataclass(frozen=True, slots=True)
class _LogParts:
    """Loads the parts of a LogView."""

    services: DashboardServices
    log: TenantLog
    now: datetime
    state: State

    @property
    def view(self) -> LogView:
        """The view, of which nothing is loaded yet."""
        blocked = self.state.only("decision", "BLOCKED")
        installs = replace(self.state, given={**self.state.given, "decision": tuple(Decision)})
        jobs = self.state.beginning("actor_source", CI_SOURCE_PREFIX)
        return LogView(
            state=self.state,
            all_changes=self._all_changes,
            summary=Later(self._summary),
            blocked_packages=Later(lambda: self._facet("package", blocked)),
            ci_jobs=Later(lambda: self._facet("subject", jobs)),
            ecosystems=Later(lambda: self._facet("ecosystem", installs)),
            changes=Later(self._changes),
        )

    @property
    def _all_changes(self) -> State:
        """The audit page with every change to the organisation, and nothing else."""
        return State({"event": ADMIN_EVENTS}, self.state.path)

    async def _summary(self) -> SummaryPanel | SummaryUnavailable:
        query = parse_query(self.state.as_of(self.now).filters)
        return await load_summary_panel(
            self.services.store, self.log, query, self.now, self.state, ["actor"]
        )

    async def _facet(self, name: str, state: State) -> Facet | SummaryUnavailable:
        """The most frequent values of `name` among the rows of `state`."""
        query = parse_query(state.as_of(self.now).filters)
        values = await or_unavailable(
            self.log.values(query, FILTER_COLUMNS[name], TOP_MAX, GLANCE_MAX_S)
        )
        if isinstance(values, SummaryUnavailable):
            return values
        counts = [ValueCount(*value) for value in values]
        return await load_facet(self.services.store, self.log, name, counts, state)

    async def _changes(self) -> list[ShownRow] | SummaryUnavailable:
        """The latest changes to the organisation within its retention."""
        query = parse_query(self._all_changes.filters)
        rows = await or_unavailable(self.log.page(query, CHANGES_MAX, time_max_s=GLANCE_MAX_S))
        if isinstance(rows, SummaryUnavailable):
            return rows
        org = self.log.org
        texts = json_objects(rows, org.id)
        return await load_shown_rows(self.services, org, texts, self._all_changes, self.now)


@dataclass(frozen=True, slots=True)
class Overview:
    """The page's data for one caller. A part that they may not see is None.

    `owners` are the addresses of some owners, who could grant them access. `prune_refused` says why
    no old rows are dropped at present, None if they are.
    """

    retention: RetentionWindow
    role: Role | None
    trust: Trust | None
    log: LogView | None
    owners: list[str]
    first_steps: list[Step]
    prune_refused: str | None


async def load_overview(services: DashboardServices, caller: Caller, org: Organisation) -> Overview:
    """The overview of `org` for `caller`, as of now. Raises StoreUnavailable."""
    now = services.clock()
    retention = retention_window(org, now)
    trust, log, owners = None, None, []
    steps: list[Step] = []
    if may(caller, Capability.OIDC_READ, org):
        trust = await _trust(services, org, now - LENGTH)
    if may(caller, Capability.AUDIT_READ, org):
        rows = await open_log(services.store, services.audit.lake, org, now)
        log = _LogParts(services, rows, now, _last_day(org)).view
        if trust is not None:
            steps = await first_steps(services, caller, org, rows, trust.bindings)
    if trust is None or log is None:
        async with services.store.read() as session:
            owners = [owner.email for owner in await list_owners(session, org, OWNERS_MAX)]
    role = caller.role if isinstance(caller, MemberPrincipal) else None
    refusal = await services.clock_guard.refusal()
    why = None if refusal is None else refusal.why
    return Overview(retention, role, trust, log, owners, steps, why)


def _last_day(org: Organisation) -> State:
    return State({"last": (WINDOW,)}, url_for("dashboard.audit_page", slug=org.slug))


async def _trust(services: DashboardServices, org: Organisation, since: datetime) -> Trust:
    async with services.store.read() as session:
        return Trust(
            await count_active(session, org.id, since),
            await count_rejected(session, org.id, since),
        )
