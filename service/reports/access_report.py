"""Who could do what in an organisation, as of an instant."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from service.audit.tenant_log import open_log
from service.bindings.repository import BindingState, list_bindings
from service.errors import Invalid
from service.lake import Lake
from service.orgs.repository import get_org_by_id
from service.orgs.roles import Capability, Role, granted
from service.reports.recorded_changes import RecordedChanges, load_changes
from service.reports.rights_history import TeamOffice
from service.store.store import Store
from service.store.tables import ApiKey, Binding, Member, Organisation, Team, TeamAdmin
from service.threads import in_thread


@dataclass(frozen=True, slots=True)
class MemberRights:
    """A member then: their role, and the teams they administered."""

    member: Member
    role: Role
    teams: list[Team]


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
    teams: list[Team]
    api_keys: Sequence[ApiKey]
    bindings: Sequence[Binding]

    @property
    def is_complete(self) -> bool:
        """Whether all changes since `as_of` are known."""
        return self.rights_as_of == self.as_of

    def capabilities(self, role: Role) -> list[Capability]:
        """What `role` granted then."""
        held = granted(role, self.grants)
        return [capability for capability in Capability if capability in held]

    def admins(self) -> dict[str, list[Member]]:
        """The members who administered each team, by its id and their email address."""
        admins: dict[str, list[Member]] = {team.id: [] for team in self.teams}
        for entry in self.members:
            for team in entry.teams:
                admins[team.id].append(entry.member)
        return admins


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the tables hold. `members` are those of then, with the role they last had."""

    org: Organisation
    members: Sequence[Member]
    teams: Sequence[Team]
    offices: set[TeamOffice]
    api_keys: Sequence[ApiKey]
    bindings: Sequence[Binding]


async def report_access(
    store: Store, lake: Lake, org: Organisation, as_of: datetime | None, now: datetime
) -> AccessReport:
    """The report of `org` as of that instant, by default `now`.

    Raises Invalid for an instant in the future or before the organisation was created;
    StoreFault, QueryTooSlow.
    """
    as_of = now if as_of is None else as_of
    if as_of > now:
        raise Invalid("asOf must not be in the future", field="asOf")
    if as_of < org.created_at:
        raise Invalid("asOf is before the organisation was created", field="asOf")
    # The tables first: the rows of changes that are committed meanwhile are undone like any other.
    async with store.read() as session:
        stored = await _load(session, org.id, as_of)
    log = await open_log(store, lake, org, now)
    recorded = await load_changes(log)
    return await in_thread(_assembled, stored, recorded, as_of, now, log.floor)


def _assembled(
    stored: _Stored,
    recorded: RecordedChanges,
    as_of: datetime,
    now: datetime,
    floor: datetime | None,
) -> AccessReport:
    complete_from = recorded.complete_from
    if complete_from is not None and complete_from <= stored.org.created_at:
        complete_from = None
    rights_as_of = as_of if complete_from is None else max(as_of, min(complete_from, now))
    history = recorded.history
    former_roles = history.former_roles(rights_as_of)
    left = {member.id for member in stored.members if member.removed_at is not None}
    names = {team.id: team for team in stored.teams}
    teams: dict[str, list[Team]] = defaultdict(list)
    for team_id, member_id in history.team_offices(stored.offices, rights_as_of, left):
        if team_id in names:
            teams[member_id].append(names[team_id])
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
                sorted(teams[member.id], key=lambda team: team.name),
            )
            for member in stored.members
        ],
        teams=list(stored.teams),
        api_keys=stored.api_keys,
        bindings=stored.bindings,
    )


async def _load(session: AsyncSession, tenant_id: str, as_of: datetime) -> _Stored:
    members = select(Member).where(
        Member.tenant_id == tenant_id, _held_at(Member.created_at, as_of, Member.removed_at)
    )
    teams = select(Team).where(Team.tenant_id == tenant_id, Team.created_at <= as_of)
    offices = (
        select(TeamAdmin.team_id, TeamAdmin.member_id)
        .join(Team, Team.id == TeamAdmin.team_id)
        .where(Team.tenant_id == tenant_id)
    )
    keys = select(ApiKey).where(
        ApiKey.tenant_id == tenant_id,
        _held_at(ApiKey.created_at, as_of, ApiKey.revoked_at),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > as_of),
    )
    return _Stored(
        org=await get_org_by_id(session, tenant_id),
        members=(await session.scalars(members.order_by(Member.email, Member.id))).all(),
        teams=(await session.scalars(teams.order_by(Team.name))).all(),
        offices={(team_id, member_id) for team_id, member_id in await session.execute(offices)},
        api_keys=(await session.scalars(keys.order_by(ApiKey.created_at, ApiKey.id))).all(),
        bindings=await list_bindings(session, tenant_id, BindingState.ACTIVE, as_of),
    )


def _held_at(
    begins: InstrumentedAttribute[datetime],
    as_of: datetime,
    ends: InstrumentedAttribute[datetime | None],
) -> ColumnElement[bool]:
    return and_(begins <= as_of, or_(ends.is_(None), ends > as_of))
