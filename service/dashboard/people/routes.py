"""The pages on which an organisation is run, and what their forms do."""

from functools import partial

from quart import Blueprint
from quart.typing import ResponseReturnValue

from analytics.model.rows import VerdictSource
from service.access.authorization import authorize
from service.dashboard.people import keys, members, projects, roles, teams
from service.dashboard.people.form_actions import issue_secret, submit
from service.dashboard.people.keys import KEYS
from service.dashboard.people.members import MEMBERS
from service.dashboard.people.page import OrgPage
from service.dashboard.people.projects import PROJECTS
from service.dashboard.people.roles import ROLES
from service.dashboard.people.teams import TEAMS
from service.orgs.roles import Capability

blueprint = Blueprint("dashboard_people", __name__, url_prefix="/admin/ui/orgs/<slug>")


async def _shown(slug: str, page: OrgPage) -> ResponseReturnValue:
    caller, org = await authorize(slug, Capability.ORG_ADMIN, VerdictSource.DASHBOARD)
    return await page.show(caller, org)


@blueprint.get("/members")
async def members_page(slug: str) -> ResponseReturnValue:
    """Show who is in the organisation."""
    return await _shown(slug, MEMBERS)


@blueprint.post("/members")
async def invite(slug: str) -> ResponseReturnValue:
    """Let somebody in."""
    return await submit(slug, MEMBERS, members.invite, "email")


@blueprint.post("/members/<member_id>/role")
async def give_role(slug: str, member_id: str) -> ResponseReturnValue:
    """Give a member another role."""
    step = partial(members.give_role, member_id=member_id)
    return await submit(slug, MEMBERS, step, "role")


@blueprint.post("/members/<member_id>/remove")
async def remove_member(slug: str, member_id: str) -> ResponseReturnValue:
    """End a membership."""
    return await submit(slug, MEMBERS, partial(members.remove, member_id=member_id), "remove")


@blueprint.post("/members/<member_id>/sign-out")
async def sign_member_out(slug: str, member_id: str) -> ResponseReturnValue:
    """End a member's sessions."""
    return await submit(slug, MEMBERS, partial(members.sign_out, member_id=member_id))


@blueprint.post("/members/<member_id>/remove-passkeys")
async def remove_passkeys(slug: str, member_id: str) -> ResponseReturnValue:
    """Remove all passkeys of a member."""
    step = partial(members.remove_passkeys, member_id=member_id)
    return await submit(slug, MEMBERS, step)


@blueprint.post("/members/<member_id>/link")
async def issue_link(slug: str, member_id: str) -> ResponseReturnValue:
    """Show a link that signs a member in, this once."""
    return await issue_secret(slug, MEMBERS, partial(members.issue_link, member_id=member_id))


@blueprint.get("/teams")
async def teams_page(slug: str) -> ResponseReturnValue:
    """Show the teams and who administers them."""
    return await _shown(slug, TEAMS)


@blueprint.post("/teams")
async def create_team(slug: str) -> ResponseReturnValue:
    """Make a team."""
    return await submit(slug, TEAMS, teams.create, "name")


@blueprint.post("/teams/<team_id>/admins")
async def appoint_team_admin(slug: str, team_id: str) -> ResponseReturnValue:
    """Make a member an admin of a team."""
    return await submit(slug, TEAMS, partial(teams.appoint, team_id=team_id), "member")


@blueprint.post("/teams/<team_id>/admins/<member_id>/dismiss")
async def dismiss_team_admin(slug: str, team_id: str, member_id: str) -> ResponseReturnValue:
    """End that a member is an admin of a team."""
    step = partial(teams.dismiss, team_id=team_id, member_id=member_id)
    return await submit(slug, TEAMS, step)


@blueprint.get("/projects")
async def projects_page(slug: str) -> ResponseReturnValue:
    """Show the projects and what is limited to them."""
    return await _shown(slug, PROJECTS)


@blueprint.post("/projects")
async def create_project(slug: str) -> ResponseReturnValue:
    """Make a project."""
    return await submit(slug, PROJECTS, projects.create, "name")


@blueprint.get("/keys")
async def keys_page(slug: str) -> ResponseReturnValue:
    """Show what proxies and scripts send rows with."""
    return await _shown(slug, KEYS)


@blueprint.post("/keys")
async def issue_key(slug: str) -> ResponseReturnValue:
    """Show a new API key, this once."""
    return await issue_secret(slug, KEYS, keys.issue_key, "project")


@blueprint.post("/keys/<key_id>/revoke")
async def revoke_key(slug: str, key_id: str) -> ResponseReturnValue:
    """End an API key."""
    return await submit(slug, KEYS, partial(keys.revoke_key, key_id=key_id))


@blueprint.get("/roles")
async def roles_page(slug: str) -> ResponseReturnValue:
    """Show what each role may do."""
    return await _shown(slug, ROLES)


@blueprint.post("/roles/<role>")
async def grant(slug: str, role: str) -> ResponseReturnValue:
    """Let a role do more than by default."""
    return await submit(slug, ROLES, partial(roles.grant, role=role))
