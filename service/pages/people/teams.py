"""The teams page: teams and their admins."""

from functools import partial
from typing import Final

from quart import Blueprint

from service.access.roles import Capability
from service.orgs.teams import admins_of, appoint, create, dismiss
from service.pages.navigation import may_decide_over
from service.pages.page import Page, PageCall, View, list_part
from service.store.organisations import list_members_from, list_named_from
from service.store.tables import Team

OFFERED_MAX: Final = 200
"""How many addresses are offered as completions; any other can be typed in full."""

blueprint = Blueprint("dashboard_teams", __name__, url_prefix="/admin/ui/orgs/<slug>/teams")


@Page(
    blueprint,
    "",
    "people/teams.html",
    needs=Capability.ORG_ADMIN,
    done={
        "created": "The team was created. Now add an admin.",
        "appointed": "The admin was added.",
        "dismissed": "They are no longer an admin of the team.",
    },
    is_list=True,
)
async def teams_page(call: PageCall) -> View:
    """A part of the teams with their admins, and addresses of members who could become admins."""
    caller, org = call.caller, call.org
    async with call.read() as session:
        load = partial(list_named_from, session, org, Team)
        part = await list_part(load, lambda team: team.name)
        admins = await admins_of(session, org, part.rows)
        members = await list_members_from(session, org, "", "", OFFERED_MAX)
    return {
        "part": part,
        "rows": [
            {
                "team": team,
                "admins": [
                    {"member": each, "may_change": may_decide_over(caller, each.role, org)}
                    for each in admins[team.id]
                ],
            }
            for team in part.rows
        ],
        "addresses": [each.email for each in members if may_decide_over(caller, each.role, org)],
    }


teams_page.form("", "create_team", create, "created", field="name")
teams_page.form("/<team_id>/admins", "appoint_team_admin", appoint, "appointed", field="member")
teams_page.form("/<team_id>/admins/<member_id>/dismiss", "dismiss_team_admin", dismiss, "dismissed")
