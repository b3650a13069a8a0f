"""Routes of the pages to manage an organisation, and of their forms."""

from functools import partial

from quart import Blueprint
from quart.typing import ResponseReturnValue

from analytics.model.rows import VerdictSource
from service.dashboard.people import keys, members, projects, roles, teams
from service.dashboard.people.form_actions import issue_secret, submit
from service.dashboard.people.keys import KEYS
from service.dashboard.people.members import MEMBERS
from service.dashboard.people.page import OrgPage
from service.dashboard.people.projects import PROJECTS
from service.dashboard.people.roles import ROLES
from service.dashboard.people.teams import TEAMS
from service.dashboard.services import DashboardServices
from service.orgs.roles import Capability
from service.web.dependencies import receives

blueprint = Blueprint("dashboard_people", __name__, url_prefix="/admin/ui/orgs/<slug>")


async def _shown(services: DashboardServices, slug: str, page: OrgPage) -> ResponseReturnValue:
    caller, org = await services.access.authorize(
        slug, Capability.ORG_ADMIN, VerdictSource.DASHBOARD
    )
    return await page.show(services, caller, org)


@blueprint.get("/members")
@receives(DashboardServices)
async def members_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the organisation's members."""
    return await _shown(services, slug, MEMBERS)


@blueprint.post("/members")
@receives(DashboardServices)
async def invite(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Invite a member."""
    return await submit(services, slug, MEMBERS, members.invite, "email")


@blueprint.post("/members/<member_id>/role")
@receives(DashboardServices)
async def give_role(services: DashboardServices, slug: str, member_id: str) -> ResponseReturnValue:
    """Change a member's role."""
    step = partial(members.give_role, member_id=member_id)
    return await submit(services, slug, MEMBERS, step, "role")


@blueprint.post("/members/<member_id>/remove")
@receives(DashboardServices)
async def remove_member(
    services: DashboardServices, slug: str, member_id: str
) -> ResponseReturnValue:
    """End a membership."""
    return await submit(
        services, slug, MEMBERS, partial(members.remove, member_id=member_id), "remove"
    )


@blueprint.post("/members/<member_id>/sign-out")
@receives(DashboardServices)
async def sign_member_out(
    services: DashboardServices, slug: str, member_id: str
) -> ResponseReturnValue:
    """End a member's sessions."""
    return await submit(services, slug, MEMBERS, partial(members.sign_out, member_id=member_id))


@blueprint.post("/members/<member_id>/remove-passkeys")
@receives(DashboardServices)
async def remove_passkeys(
    services: DashboardServices, slug: str, member_id: str
) -> ResponseReturnValue:
    """Remove all passkeys of a member."""
    step = partial(members.remove_passkeys, member_id=member_id)
    return await submit(services, slug, MEMBERS, step)


@blueprint.post("/members/<member_id>/link")
@receives(DashboardServices)
async def issue_link(services: DashboardServices, slug: str, member_id: str) -> ResponseReturnValue:
    """Issue a sign-in link for a member and show it, once."""
    return await issue_secret(
        services, slug, MEMBERS, partial(members.issue_link, member_id=member_id)
    )


@blueprint.get("/teams")
@receives(DashboardServices)
async def teams_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the teams and who administers them."""
    return await _shown(services, slug, TEAMS)


@blueprint.post("/teams")
@receives(DashboardServices)
async def create_team(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Create a team."""
    return await submit(services, slug, TEAMS, teams.create, "name")


@blueprint.post("/teams/<team_id>/admins")
@receives(DashboardServices)
async def appoint_team_admin(
    services: DashboardServices, slug: str, team_id: str
) -> ResponseReturnValue:
    """Make a member an admin of a team."""
    return await submit(services, slug, TEAMS, partial(teams.appoint, team_id=team_id), "member")


@blueprint.post("/teams/<team_id>/admins/<member_id>/dismiss")
@receives(DashboardServices)
async def dismiss_team_admin(
    services: DashboardServices, slug: str, team_id: str, member_id: str
) -> ResponseReturnValue:
    """Remove a member as admin of a team."""
    step = partial(teams.dismiss, team_id=team_id, member_id=member_id)
    return await submit(services, slug, TEAMS, step)


@blueprint.get("/projects")
@receives(DashboardServices)
async def projects_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the projects and what is limited to them."""
    return await _shown(services, slug, PROJECTS)


@blueprint.post("/projects")
@receives(DashboardServices)
async def create_project(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Create a project."""
    return await submit(services, slug, PROJECTS, projects.create, "name")


@blueprint.get("/keys")
@receives(DashboardServices)
async def keys_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show the API keys."""
    return await _shown(services, slug, KEYS)


@blueprint.post("/keys")
@receives(DashboardServices)
async def issue_key(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Issue an API key and show it, once."""
    return await issue_secret(services, slug, KEYS, keys.issue_key, "project")


@blueprint.post("/keys/<key_id>/rotate")
@receives(DashboardServices)
async def rotate_key(services: DashboardServices, slug: str, key_id: str) -> ResponseReturnValue:
    """Issue an API key in place of another and show it, once."""
    step = partial(keys.rotate_key, key_id=key_id)
    return await issue_secret(services, slug, KEYS, step, "overlap")


@blueprint.post("/keys/<key_id>/revoke")
@receives(DashboardServices)
async def revoke_key(services: DashboardServices, slug: str, key_id: str) -> ResponseReturnValue:
    """Revoke an API key."""
    return await submit(services, slug, KEYS, partial(keys.revoke_key, key_id=key_id))


@blueprint.get("/roles")
@receives(DashboardServices)
async def roles_page(services: DashboardServices, slug: str) -> ResponseReturnValue:
    """Show what each role may do."""
    return await _shown(services, slug, ROLES)


@blueprint.post("/roles/<role>")
@receives(DashboardServices)
async def grant(services: DashboardServices, slug: str, role: str) -> ResponseReturnValue:
    """Grant a role capabilities beyond its defaults."""
    return await submit(services, slug, ROLES, partial(roles.grant, role=role))
