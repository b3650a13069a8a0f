"""Who could do what in an organisation, as of an instant."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from analytics.model.cursors import Position
from analytics.model.events import Event
from analytics.model.filters import parse_query
from analytics.model.instants import midnight
from analytics.model.log_envelopes import AuditImported, AuditPruned
from analytics.model.org_envelopes import MemberRoleChanged, RoleOverrideChanged, TeamAdminChanged
from service.access.roles import Capability, Role, granted
from service.audit.lake import Lake
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import Invalid
from service.core.threads import in_thread
from service.store.batching import rows_of
from service.store.organisations import get_org_by_id
from service.store.store import Store
from service.store.tables import ApiKey, Binding, Member, Organisation, Team, TeamAdmin
from service.store.tables.base import Base
from service.trust.bindings.repository import NEWEST_FIRST, BindingState, in_state
from service.trust.refusals import AS_OF_IN_FUTURE

RIGHTS_EVENTS: Final = (
    MemberRoleChanged.event,
    RoleOverrideChanged.event,
    TeamAdminChanged.event,
)
"""The events whose rows are needed."""

TeamOffice = tuple[str, str]
"""A team id, and the member id of an admin of it."""


@dataclass(frozen=True, slots=True)
class RightsChange:
    """One audit row of RIGHTS_EVENTS: when, what, and the keys of its envelope."""

    at: datetime
    seq: int
    event: str
    keys: Mapping[str, Any]


class RightsHistory:
    """The changes of one organisation, up to the present."""

    def __init__(self, changes: Iterable[RightsChange]) -> None:
        self._changes = sorted(changes, key=lambda change: (change.at, change.seq))

    def former_roles(self, as_of: datetime) -> dict[str, str]:
        """The roles at `as_of`, by member id, of those whose role was changed since."""
        # Latest first, so that the earliest change after `as_of` remains.
        return {
            str(change.keys["member_id"]): str(change.keys["role_before"])
            for change in reversed(self._after(as_of, MemberRoleChanged.event))
        }

    def overrides(
        self, present: Mapping[str, Sequence[str]], as_of: datetime
    ) -> dict[str, list[str]]:
        """The capabilities of each role beyond its defaults at `as_of`."""
        then = {role: list(names) for role, names in present.items()}
        for change in reversed(self._after(as_of, RoleOverrideChanged.event)):
            then[change.keys["role"]] = list(change.keys["capabilities_before"])
        return {role: names for role, names in then.items() if names}

    def team_offices(
        self, present: Collection[TeamOffice], as_of: datetime, left: Collection[str]
    ) -> set[TeamOffice]:
        """Who administered which team at `as_of`.

        `left` are members who have been removed since: their offices ended with the membership,
        without a row of their own, so they are those that had begun by then.
        """
        then = {office for office in present if office[1] not in left}
        for change in self._changes:
            office = _office(change)
            if office is not None and change.at <= as_of and office[1] in left:
                (then.add if change.keys["is_admin"] else then.discard)(office)
        for change in reversed(self._after(as_of, TeamAdminChanged.event)):
            office = _office(change)
            if office is not None:
                (then.discard if change.keys["is_admin"] else then.add)(office)
        return then

    def _after(self, as_of: datetime, event: Event) -> list[RightsChange]:
        return [change for change in self._changes if change.event == event and change.at > as_of]


def _office(change: RightsChange) -> TeamOffice | None:
    if change.event != TeamAdminChanged.event:
        return None
    return change.keys["team_id"], change.keys["member_id"]


CHANGES_MAX: Final = 100_000
"""Rows that are read at most, newest first."""

_DAY: Final = timedelta(days=1)
_PAGE_ROWS: Final = 1_000
_COLUMNS: Final = ("created_at", "seq", "event", "payload")


async def load_changes(log: TenantLog) -> tuple[RightsHistory, datetime | None]:
    """The changes of rights in `log`, within its retention, and from when on none is missing.

    None: no change was ever dropped or hidden. Raises StoreFault, QueryTooSlow.
    """
    changes: list[RightsChange] = []
    bounds = [] if log.floor is None else [log.floor]
    query = parse_query({"event": [*RIGHTS_EVENTS, AuditPruned.event, AuditImported.event]})
    after: Position | None = None
    while True:
        rows = await log.page(query, _PAGE_ROWS, after)
        changes += _changes(rows)
        if rows.num_rows < _PAGE_ROWS:
            break
        (last,) = rows.slice(rows.num_rows - 1).select(["created_at", "seq"]).to_pylist()
        if len(changes) >= CHANGES_MAX:
            bounds.append(last["created_at"])
            break
        after = Position(log.snapshot.watermark, last["created_at"], last["seq"])
    return await in_thread(_recorded, changes, bounds)


def _recorded(
    changes: list[RightsChange], bounds: list[datetime]
) -> tuple[RightsHistory, datetime | None]:
    own = _without_imported(changes)
    bounds += [
        midnight(date.fromisoformat(change.keys["last_day"])) + _DAY
        for change in own
        if change.event == AuditPruned.event
    ]
    history = RightsHistory(change for change in own if change.event in RIGHTS_EVENTS)
    return history, max(bounds, default=None)


def _changes(rows: pa.Table) -> list[RightsChange]:
    return [
        RightsChange(row["created_at"], row["seq"], row["event"], json.loads(row["payload"]))
        for row in rows.select(list(_COLUMNS)).to_pylist()
    ]


def _without_imported(changes: Iterable[RightsChange]) -> list[RightsChange]:
    """The `changes` whose rows this service made, latest first.

    Those of an imported file tell of another service's members and roles, or of what the tables
    here never held. Their seq are those just before the row about the import.
    """
    own: list[RightsChange] = []
    first = math.inf
    for change in sorted(changes, key=lambda change: change.seq, reverse=True):
        if first <= change.seq:
            continue  # of the import that was met last
        first = math.inf
        if change.event == AuditImported.event:
            first = change.seq - change.keys["rows"]
        own.append(change)
    return own


class Reported(Struct, frozen=True, gc=False):
    """An entry of the report. There may be tens of thousands, and none is part of a cycle.

    To look through them takes the garbage collector up to 40 ms, in which nothing else runs.
    """


class ReportedMember(Reported, frozen=True):
    """The columns of a member that the report has."""

    id: str
    email: str
    role: str
    identity_provider: str
    created_at: datetime
    removed_at: datetime | None


class ReportedTeam(Reported, frozen=True):
    """The columns of a team that the report has."""

    id: str
    name: str
    created_at: datetime


class ReportedKey(Reported, frozen=True):
    """The columns of an API key that the report has."""

    id: str
    name: str
    scopes: list[str]
    project_id: str | None
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ReportedBinding(Reported, frozen=True):
    """The columns of a binding that the report has."""

    id: str
    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    conditions: dict[str, str] | None
    origin: str
    project_id: str | None
    team_id: str | None
    added_by: str
    added_at: datetime
    revoked_at: datetime | None


class MemberRights(Reported, frozen=True):
    """A member then: their role, and the teams they administered."""

    member: ReportedMember
    role: Role
    teams: list[ReportedTeam]


@dataclass(frozen=True, slots=True)
class AccessReport:
    """Who could do what at `as_of`, as far as it is known at `made_at`.

    Roles, grants beyond their defaults and team admins are those of `rights_as_of`: that is later
    than `as_of` if changes between the two are no longer known. All else is exact.
    """

    org: Organisation
    as_of: datetime
    made_at: datetime
    retention_floor: datetime | None
    rights_as_of: datetime
    grants: dict[str, list[str]]
    members: list[MemberRights]
    teams: list[ReportedTeam]
    api_keys: list[ReportedKey]
    bindings: list[ReportedBinding]

    @property
    def is_complete(self) -> bool:
        """Whether all changes since `as_of` are known."""
        return self.rights_as_of == self.as_of

    def capabilities(self, role: Role) -> list[Capability]:
        """What `role` granted then."""
        held = granted(role, self.grants)
        return [capability for capability in Capability if capability in held]

    def admins(self) -> dict[str, list[ReportedMember]]:
        """The members who administered each team, by its id and their email address."""
        admins: dict[str, list[ReportedMember]] = {team.id: [] for team in self.teams}
        for entry in self.members:
            for team in entry.teams:
                admins[team.id].append(entry.member)
        return admins


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the tables hold. `members` are those of then, with the role they last had."""

    org: Organisation
    members: list[ReportedMember]
    teams: list[ReportedTeam]
    offices: set[TeamOffice]
    api_keys: list[ReportedKey]
    bindings: list[ReportedBinding]


async def report_access(
    store: Store, lake: Lake, org: Organisation, as_of: datetime | None, now: datetime
) -> AccessReport:
    """The report of `org` as of that instant, by default `now`.

    Raises Invalid for an instant in the future or before the organisation was created;
    StoreFault, QueryTooSlow.
    """
    as_of = now if as_of is None else as_of
    if as_of > now:
        raise AS_OF_IN_FUTURE
    if as_of < org.created_at:
        raise Invalid("asOf is before the organisation was created", field="asOf")
    # The tables first: the rows of changes that are committed meanwhile are undone like any other.
    async with store.read() as session:
        stored = await _load(session, org.id, as_of)
    log = await open_log(store, lake, org, now)
    history, complete_from = await load_changes(log)
    return await in_thread(_assembled, stored, history, complete_from, as_of, now, log.floor)


def _assembled(
    stored: _Stored,
    history: RightsHistory,
    complete_from: datetime | None,
    as_of: datetime,
    now: datetime,
    floor: datetime | None,
) -> AccessReport:
    if complete_from is not None and complete_from <= stored.org.created_at:
        complete_from = None
    rights_as_of = as_of if complete_from is None else max(as_of, min(complete_from, now))
    former_roles = history.former_roles(rights_as_of)
    left = {member.id for member in stored.members if member.removed_at is not None}
    names = {team.id: team for team in stored.teams}
    teams: dict[str, list[ReportedTeam]] = defaultdict(list)
    offices = history.team_offices(stored.offices, rights_as_of, left)
    for team_id, member_id in offices:
        if team_id in names:
            teams[member_id].append(names[team_id])
    for administered in teams.values():
        administered.sort(key=lambda team: team.name)
    return AccessReport(
        org=stored.org,
        as_of=as_of,
        made_at=now,
        retention_floor=floor,
        rights_as_of=rights_as_of,
        grants=history.overrides(stored.org.role_overrides, rights_as_of),
        members=[
            MemberRights(
                member,
                Role(former_roles.get(member.id, member.role)),
                teams.get(member.id, []),
            )
            for member in stored.members
        ],
        teams=stored.teams,
        api_keys=stored.api_keys,
        bindings=stored.bindings,
    )


async def _load(session: AsyncSession, tenant_id: str, as_of: datetime) -> _Stored:
    """Columns, no mapped objects: there may be tens of thousands of each kind."""
    members = _columns(Member, ReportedMember).where(
        Member.tenant_id == tenant_id, _held_at(Member.created_at, as_of, Member.removed_at)
    )
    teams = _columns(Team, ReportedTeam).where(
        Team.tenant_id == tenant_id, Team.created_at <= as_of
    )
    offices = (
        select(TeamAdmin.team_id, TeamAdmin.member_id)
        .join(Team, Team.id == TeamAdmin.team_id)
        .where(Team.tenant_id == tenant_id)
    )
    keys = _columns(ApiKey, ReportedKey).where(
        ApiKey.tenant_id == tenant_id,
        _held_at(ApiKey.created_at, as_of, ApiKey.revoked_at),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > as_of),
    )
    bindings = _columns(Binding, ReportedBinding).where(
        Binding.tenant_id == tenant_id, in_state(BindingState.ACTIVE, as_of)
    )
    return _Stored(
        org=await get_org_by_id(session, tenant_id),
        members=await rows_of(session, members.order_by(Member.email, Member.id), ReportedMember),
        teams=await rows_of(session, teams.order_by(Team.name), ReportedTeam),
        offices=set(await rows_of(session, offices, lambda *office: office)),
        api_keys=await rows_of(session, keys.order_by(ApiKey.created_at, ApiKey.id), ReportedKey),
        bindings=await rows_of(session, bindings.order_by(*NEWEST_FIRST), ReportedBinding),
    )


def _columns(table: type[Base], form: type[Reported]) -> Select[*tuple[Any, ...]]:
    """The columns of `table` that `form` names."""
    return select(*(getattr(table, name) for name in form.__struct_fields__))


def _held_at(
    begins: InstrumentedAttribute[datetime],
    as_of: datetime,
    ends: InstrumentedAttribute[datetime | None],
) -> ColumnElement[bool]:
    return and_(begins <= as_of, or_(ends.is_(None), ends > as_of))
