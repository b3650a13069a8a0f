"""The overview: the last day at a glance; each part needs the capability for its details."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from quart import url_for

from analytics.export.wire import json_objects
from analytics.model.envelopes import ADMIN_EVENTS
from analytics.model.filters import FILTER_COLUMNS, parse_query
from analytics.query.summaries import TOP_MAX, ValueCount
from service.access.callers import Caller, MemberPrincipal
from service.audit.tenant_log import TenantLog, open_log
from service.bindings.repository import BindingCounts, count_active
from service.dashboard.display_names import Person, find_names
from service.dashboard.labels import CI_SOURCE_PREFIX
from service.dashboard.navigation import may
from service.dashboard.retention_window import RetentionWindow, retention_window
from service.dashboard.rows import ShownRow, shown_row
from service.dashboard.services import DashboardServices
from service.dashboard.state import WINDOWS, State
from service.dashboard.summary_panel import (
    GLANCE_MAX_S,
    SummaryPanel,
    SummaryUnavailable,
    TopValue,
    load_summary_panel,
    or_unavailable,
    top_value,
)
from service.orgs.repository import list_owners
from service.orgs.roles import Capability, Role
from service.rejected.rows import count_rejected
from service.store.store import Store
from service.store.tables import Organisation

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
class Change:
    """A change to the organisation: its row, and who made it."""

    row: ShownRow
    by: Person


@dataclass(frozen=True, slots=True)
class LogView:
    """The last day of the audit log, and the latest changes, from one snapshot.

    Each part is read when the template asks for it; it is SummaryUnavailable if that fails.
    """

    store: Store
    log: TenantLog
    now: datetime
    state: State

    async def summary_panel(self) -> SummaryPanel | SummaryUnavailable:
        """The last day's numbers."""
        query = parse_query(self.state.as_of(self.now).filters)
        return await load_summary_panel(self.log, query, self.now, self.state)

    async def blocked_packages(self) -> list[TopValue] | SummaryUnavailable:
        """The packages that were blocked most often."""
        return await self._top("package", self.state.only("decision", "BLOCKED"))

    async def ci_subjects(self) -> list[TopValue] | SummaryUnavailable:
        """The CI jobs with a verified token that sent the most requests."""
        return await self._top("subject", self.state.beginning("actor_source", CI_SOURCE_PREFIX))

    async def changes(self) -> list[Change] | SummaryUnavailable:
        """The latest changes to the organisation within its retention."""
        state = self.all_changes
        query = parse_query(state.filters)
        rows = await or_unavailable(self.log.page(query, CHANGES_MAX, time_max_s=GLANCE_MAX_S))
        if isinstance(rows, SummaryUnavailable):
            return rows
        org_id = self.log.org.id
        shown = [shown_row(text, state) for text in json_objects(rows, org_id)]
        return await _named(self.store, org_id, shown)

    @property
    def all_changes(self) -> State:
        """The audit page with every change to the organisation, and nothing else."""
        return State({"event": ADMIN_EVENTS}, self.state.path)

    async def _top(self, name: str, state: State) -> list[TopValue] | SummaryUnavailable:
        query = parse_query(state.as_of(self.now).filters)
        values = await or_unavailable(
            self.log.values(query, FILTER_COLUMNS[name], TOP_MAX, GLANCE_MAX_S)
        )
        if isinstance(values, SummaryUnavailable):
            return values
        return [top_value(name, ValueCount(*value), state, len(values)) for value in values]


@dataclass(frozen=True, slots=True)
class Overview:
    """The page's data for one caller. A part that they may not see is None.

    `owners` are the addresses of some owners, who could grant them access.
    """

    retention: RetentionWindow
    role: Role | None
    trust: Trust | None
    log: LogView | None
    owners: list[str]


async def load_overview(services: DashboardServices, caller: Caller, org: Organisation) -> Overview:
    """The overview of `org` for `caller`, as of now. Raises StoreUnavailable."""
    now = services.clock()
    retention = retention_window(org, now)
    trust, log, owners = None, None, []
    if may(caller, Capability.OIDC_READ, org):
        trust = await _trust(services, org, now - LENGTH)
    if may(caller, Capability.AUDIT_READ, org):
        rows = await open_log(services.store, services.audit.lake, org, now)
        log = LogView(services.store, rows, now, _last_day(org))
    if trust is None or log is None:
        async with services.store.read() as session:
            owners = [owner.email for owner in await list_owners(session, org, OWNERS_MAX)]
    role = caller.role if isinstance(caller, MemberPrincipal) else None
    return Overview(retention, role, trust, log, owners)


async def _named(store: Store, tenant_id: str, rows: list[ShownRow]) -> list[Change]:
    async with store.read() as session:
        actors = {row.entry["actor"] for row in rows}
        names = await find_names(session, tenant_id, actors=actors)
    return [Change(row, names.person(row.entry["actor"])) for row in rows]


def _last_day(org: Organisation) -> State:
    return State({"last": (WINDOW,)}, url_for("dashboard.audit_page", slug=org.slug))


async def _trust(services: DashboardServices, org: Organisation, since: datetime) -> Trust:
    async with services.store.read() as session:
        return Trust(
            await count_active(session, org.id, since),
            await count_rejected(session, org.id, since),
        )
