"""The teams page: teams and their admins."""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.orgs.changes import create_team, set_team_admin
from service.pages.people.form_actions import Change
from service.pages.people.page import PLACE, OrgPage, may_decide_over
from service.pages.services import DashboardServices
from service.store.organisations import (
    get_team,
    list_members_from,
    list_named_from,
    list_team_offices,
)
from service.store.tables import Member, Organisation, Team

OFFERED_MAX: Final = 200
"""How many addresses are offered as completions; any other can be typed in full."""


@dataclass(frozen=True, slots=True)
class TeamAdminRow:
    """One admin of a team."""

    member: Member
    may_change: bool


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One team and its admins."""

    team: Team
    admins: list[TeamAdminRow]


async def load_teams_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """A part of the teams with their admins, and addresses of members who could become admins."""
    part = await TEAMS.part(partial(list_named_from, session, org, Team), lambda team: team.name)
    is_shown = Team.id.in_([team.id for team in part.rows])
    admins: dict[str, list[TeamAdminRow]] = defaultdict(list)
    for team, member in await list_team_offices(session, org, is_shown):
        row = TeamAdminRow(member, may_decide_over(caller, member.role, org))
        admins[team.id].append(row)
    members = await list_members_from(session, org, "", "", OFFERED_MAX)
    return {
        "part": part,
        "rows": [TeamRow(team, admins[team.id]) for team in part.rows],
        "addresses": [each.email for each in members if may_decide_over(caller, each.role, org)],
    }


async def create(change: Change) -> str:
    """Create a team."""
    await create_team(change.work, change.org, change.typed("name"), change.by)
    return "created"


async def appoint(change: Change, team_id: str) -> str:
    """Make a member, by address or id, an admin of a team."""
    return await _set_admin(change, team_id, change.typed("member"), is_admin=True)


async def dismiss(change: Change, team_id: str, member_id: str) -> str:
    """Remove an admin of a team."""
    return await _set_admin(change, team_id, member_id, is_admin=False)


async def _set_admin(change: Change, team_id: str, name: str, *, is_admin: bool) -> str:
    team = await get_team(change.work.session, change.org, team_id)
    member = await change.member(name)
    await set_team_admin(change.work, team, member, change.by, is_admin=is_admin)
    return "appointed" if is_admin else "dismissed"


TEAMS: Final = OrgPage(
    endpoint="dashboard_people.teams_page",
    template="people/teams.html",
    load=load_teams_view,
    done={
        "created": "The team was created. Now add an admin.",
        "appointed": "The admin was added.",
        "dismissed": "They are no longer an admin of the team.",
    },
    place=PLACE,
)
