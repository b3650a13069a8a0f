"""The overview: the last day at a glance, each part for those who may look further into it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from quart import url_for

from analytics.export.wire import json_objects
from analytics.model.envelopes import ADMIN_EVENTS
from analytics.model.filters import FILTER_COLUMNS, parse_query
from analytics.query.summaries import TOP_MAX, ValueCount
from analytics.storage.snapshot import Snapshot
from service.access.callers import Caller, MemberPrincipal
from service.bindings.repository import BindingCounts, count_active
from service.dashboard.display_names import Person, find_names
from service.dashboard.labels import CI_SOURCE_PREFIX
from service.dashboard.navigation import may
from service.dashboard.retention_window import Kept, kept_by
from service.dashboard.rows import ShownRow, shown_row
from service.dashboard.services import DashboardServices
from service.dashboard.state import WINDOWS, State
from service.dashboard.summary_panel import (
    GLANCE_MAX_S,
    SummaryPanel,
    SummaryUnavailable,
    TopValue,
    if_found,
    load_summary_panel,
    top_value,
)
from service.orgs.repository import list_owners
from service.orgs.roles import Capability, Role
from service.rejected.rows import count_rejected
from service.store.tables import Organisation

WINDOW: Final = "24h"
"""What "lately" is on this page, as the audit page's address says it."""

LENGTH: Final[timedelta] = WINDOWS[WINDOW]
CHANGES_MAX: Final = 10
OWNERS_MAX: Final = 10
"""How many owners are named to those who have to ask one."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The active bindings, and how many CI subjects were rejected lately."""

    bindings: BindingCounts
    rejected: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change to the organisation: its row, and who made it."""

    row: ShownRow
    by: Person


@dataclass(frozen=True, slots=True)
class LogView:
    """What the audit log holds of the last day, and the latest changes, of one snapshot.

    Each part is read when the template asks for it, and is a NoGlance where it cannot be had.
    """

    services: DashboardServices
    org: Organisation
    rows_now: Snapshot
    floor: datetime | None
    now: datetime
    state: State

    async def summary_panel(self) -> SummaryPanel | SummaryUnavailable:
        """The last day's numbers."""
        query = parse_query(self.state.as_of(self.now).filters)
        return await load_summary_panel(
            self.services.audit.lake, self.rows_now, query, self.floor, self.now, self.state
        )

    async def blocked_packages(self) -> list[TopValue] | SummaryUnavailable:
        """The packages that were blocked most often."""
        return await self._top("package", self.state.only("decision", "BLOCKED"))

    async def ci_subjects(self) -> list[TopValue] | SummaryUnavailable:
        """The CI jobs with a verified token that asked most often."""
        return await self._top("subject", self.state.beginning("actor_source", CI_SOURCE_PREFIX))

    async def changes(self) -> list[Change] | SummaryUnavailable:
        """The latest changes to the organisation, as far back as its tier keeps rows."""
        state = self.all_changes
        query = parse_query(state.filters).not_before(self.floor)
        rows = await if_found(
            self.services.audit.lake.page(self.rows_now, query, CHANGES_MAX, None, GLANCE_MAX_S)
        )
        if isinstance(rows, SummaryUnavailable):
            return rows
        return await _named(
            self.services,
            self.org,
            [shown_row(text, state) for text in json_objects(rows, self.org.id)],
        )

    @property
    def all_changes(self) -> State:
        """The audit page with every change to the organisation, and nothing else."""
        return State({"event": ADMIN_EVENTS}, self.state.path)

    async def _top(self, name: str, state: State) -> list[TopValue] | SummaryUnavailable:
        query = parse_query(state.as_of(self.now).filters).not_before(self.floor)
        found = await if_found(
            self.services.audit.lake.values(
                self.rows_now, query, FILTER_COLUMNS[name], TOP_MAX, GLANCE_MAX_S
            )
        )
        if isinstance(found, SummaryUnavailable):
            return found
        return [top_value(name, ValueCount(*one), state, len(found)) for one in found]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows to one caller. A part that is None is not for them.

    `owners` are the addresses of some who could let them see more.
    """

    kept: Kept
    role: Role | None
    trust: Trust | None
    log: LogView | None
    owners: list[str]


async def look_over(services: DashboardServices, caller: Caller, org: Organisation) -> Overview:
    """What `caller` may see of `org` at a glance, as of now. Raises StoreUnavailable."""
    now = services.clock()
    kept = kept_by(org, now)
    trust, log, owners = None, None, []
    if may(caller, Capability.OIDC_READ, org):
        trust = await _trust(services, org, now - LENGTH)
    if may(caller, Capability.AUDIT_READ, org):
        log = LogView(
            services, org, await services.store.snapshot(org.id), kept.floor, now, _last_day(org)
        )
    if trust is None or log is None:
        async with services.store.read() as session:
            owners = [one.email for one in await list_owners(session, org, OWNERS_MAX)]
    role = caller.role if isinstance(caller, MemberPrincipal) else None
    return Overview(kept, role, trust, log, owners)


async def _named(
    services: DashboardServices, org: Organisation, rows: list[ShownRow]
) -> list[Change]:
    async with services.store.read() as session:
        actors = {row.entry["actor"] for row in rows}
        names = await find_names(session, org.id, actors=actors)
    return [Change(row, names.person(row.entry["actor"])) for row in rows]


def _last_day(org: Organisation) -> State:
    return State({"last": (WINDOW,)}, url_for("dashboard.audit_page", slug=org.slug))


async def _trust(services: DashboardServices, org: Organisation, lately: datetime) -> Trust:
    async with services.store.read() as session:
        return Trust(
            await count_active(session, org.id, lately),
            await count_rejected(session, org.id, lately),
        )
