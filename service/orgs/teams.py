"""Teams, and the members who administer them."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

from msgspec import Meta
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.org_envelopes import TeamAdminChanged, TeamCreated
from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.core.errors import Conflict, NotFound
from service.core.ids import new_id
from service.core.text_rules import NAME_MAX, check_name
from service.orgs.members import managed_member
from service.store.organisations import find_named, get_named, list_named_from, list_team_offices
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation, Team, TeamAdmin
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Request, TimestampMs
from service.web.paging import ListCursors, PageQuery, list_page

_ADMIN: Final = Capability.ORG_ADMIN

resource = Resource("teams", "/teams", Tag.ORGANISATION, BaseServices)


class NewTeam(Request):
    """A team to create."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_MAX})]


class NewTeamAdmin(Request):
    """The member who is to administer the team."""

    member: Annotated[str, Meta(description="Their id or address.")]


class TeamEntry(Answer):
    """A team."""

    id: str
    name: str
    created_at: TimestampMs


class TeamAdminEntry(Answer):
    """A member who administers a team."""

    id: str
    email: str


class ListedTeam(TeamEntry):
    """A team and its admins."""

    admins: list[TeamAdminEntry]


class TeamList(Answer):
    """The organisation's teams, by name. `next_cursor` is null on the last page."""

    org: str
    teams: list[ListedTeam]
    next_cursor: str | None


class TeamAdminChange(Answer):
    """Whether the member now administers the team: their ids, the team's name, the address."""

    team: str
    name: str
    member: str
    email: str
    is_admin: bool


@resource.get("list_teams", needs=_ADMIN, query=PageQuery, returns=TeamList)
async def list_(call: Call[BaseServices], query: PageQuery) -> TeamList:
    """List the organisation's teams and who administers them, by name."""
    cursors = ListCursors.of(call.services.settings, "teams", call.org.id, query.find)
    async with call.read() as session:
        load = partial(list_named_from, session, call.org, Team)
        teams, next_cursor = await list_page(cursors, query, load, lambda row: row.name)
        admins = await admins_of(session, call.org, teams)
    return TeamList(
        org=call.org.slug,
        teams=[
            ListedTeam.from_row(team, admins=list(map(TeamAdminEntry.from_row, admins[team.id])))
            for team in teams
        ],
        next_cursor=next_cursor,
    )


@resource.post(
    "create_team",
    needs=_ADMIN,
    body=NewTeam,
    example={"name": "platform"},
    returns=TeamEntry,
    status=201,
    refuses=[Conflict],
)
async def create(call: WriteCall[BaseServices], body: NewTeam) -> TeamEntry:
    """Create a team."""
    return TeamEntry.from_row(await create_team(call.work, call.org, body.name, call.by))


@resource.post(
    "add_team_admin",
    "/<team_id>/admins",
    needs=_ADMIN,
    body=NewTeamAdmin,
    example={"member": "ada@example.com"},
    returns=TeamAdminChange,
    is_sensitive=True,
    refuses=[NotFound],
)
async def appoint(
    call: WriteCall[BaseServices], body: NewTeamAdmin, team_id: str
) -> TeamAdminChange:
    """Make a member an admin of a team; their role must not exceed the caller's."""
    return await _set_admin(call, team_id, body.member, is_admin=True)


@resource.delete(
    "remove_team_admin",
    "/<team_id>/admins/<member_id>",
    needs=_ADMIN,
    returns=TeamAdminChange,
    refuses=[NotFound],
)
async def dismiss(call: WriteCall[BaseServices], team_id: str, member_id: str) -> TeamAdminChange:
    """Remove an admin of a team. They stay a member, and the team's bindings stay active."""
    return await _set_admin(call, team_id, member_id, is_admin=False)


async def create_team(work: UnitOfWork, org: Organisation, name: str, by: AuditContext) -> Team:
    """Create a team. Raises Invalid, Conflict."""
    check_name(name)
    if await find_named(work.session, org, Team, name) is not None:
        raise Conflict(f"team {name} already exists in {org.slug}")
    team = Team(id=new_id("team"), tenant_id=org.id, name=name, created_at=work.now)
    work.session.add(team)
    await work.session.flush()
    work.record(org.id, TeamCreated(team_id=team.id, name=name), by, subject=team.id)
    return team


async def set_team_admin(
    work: UnitOfWork, team: Team, member: Member, by: AuditContext, *, is_admin: bool
) -> None:
    """Add or remove `member` as an admin of `team`; without a change no audit row is added."""
    entry = await work.session.get(TeamAdmin, (team.id, member.id))
    if (entry is not None) == is_admin:
        return
    if entry is None:
        work.session.add(TeamAdmin(team_id=team.id, member_id=member.id))
        await work.session.flush()
    else:
        await work.session.delete(entry)
    work.record(
        team.tenant_id,
        TeamAdminChanged(team_id=team.id, member_id=member.id, is_admin=is_admin),
        by,
        subject=member.id,
    )


async def admins_of(
    session: AsyncSession, org: Organisation, teams: Sequence[Team]
) -> defaultdict[str, list[Member]]:
    """The admins of each of `teams` by its id, by address."""
    admins: defaultdict[str, list[Member]] = defaultdict(list)
    is_among = Team.id.in_([team.id for team in teams])
    for team, member in await list_team_offices(session, org, is_among):
        admins[team.id].append(member)
    return admins


async def _set_admin(
    call: WriteCall[BaseServices], team_id: str, name: str, *, is_admin: bool
) -> TeamAdminChange:
    team = await get_named(call.session, call.org, Team, team_id)
    member = await managed_member(call, name)
    await set_team_admin(call.work, team, member, call.by, is_admin=is_admin)
    return TeamAdminChange(
        team=team.id, name=team.name, member=member.id, email=member.email, is_admin=is_admin
    )
