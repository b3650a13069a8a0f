"""Routes of the pages to manage an organisation, and of their forms."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from quart import Blueprint
from quart.typing import ResponseReturnValue

from service.access.roles import Capability
from service.pages.people import keys, members, projects, roles, teams
from service.pages.people.form_actions import submit
from service.pages.people.keys import KEYS
from service.pages.people.members import MEMBERS
from service.pages.people.page import IssuedSecret, OrgPage
from service.pages.people.projects import PROJECTS
from service.pages.people.roles import ROLES
from service.pages.people.teams import TEAMS
from service.pages.services import DashboardServices
from service.web.dependencies import receives


@dataclass(frozen=True, slots=True)
class _Form:
    """A form that is sent to `path`, whose variables are arguments of `step`; see `submit`."""

    path: str
    page: OrgPage
    step: Callable[..., Awaitable[str | IssuedSecret]]
    field: str | None = None
    is_once: bool = False
    is_sensitive: bool = False


_PAGES: Final = {
    "members_page": ("/members", MEMBERS),
    "teams_page": ("/teams", TEAMS),
    "projects_page": ("/projects", PROJECTS),
    "keys_page": ("/keys", KEYS),
    "roles_page": ("/roles", ROLES),
}
_FORMS: Final[dict[str, _Form]] = {
    "invite": _Form("/members", MEMBERS, members.invite, "email", is_sensitive=True),
    "give_role": _Form(
        "/members/<member_id>/role", MEMBERS, members.give_role, "role", is_sensitive=True
    ),
    "remove_member": _Form("/members/<member_id>/remove", MEMBERS, members.remove, "remove"),
    "sign_member_out": _Form("/members/<member_id>/sign-out", MEMBERS, members.sign_out),
    "remove_passkeys": _Form(
        "/members/<member_id>/remove-passkeys", MEMBERS, members.remove_passkeys, is_sensitive=True
    ),
    "create_team": _Form("/teams", TEAMS, teams.create, "name"),
    "appoint_team_admin": _Form(
        "/teams/<team_id>/admins", TEAMS, teams.appoint, "member", is_sensitive=True
    ),
    "dismiss_team_admin": _Form(
        "/teams/<team_id>/admins/<member_id>/dismiss", TEAMS, teams.dismiss
    ),
    "create_project": _Form("/projects", PROJECTS, projects.create, "name"),
    "revoke_key": _Form("/keys/<key_id>/revoke", KEYS, keys.revoke_key),
    "grant": _Form("/roles/<role>", ROLES, roles.grant, is_sensitive=True),
    "issue_link": _Form(
        "/members/<member_id>/link", MEMBERS, members.issue_link, is_once=True, is_sensitive=True
    ),
    "issue_key": _Form("/keys", KEYS, keys.issue_key, "project", is_once=True, is_sensitive=True),
    "rotate_key": _Form(
        "/keys/<key_id>/rotate", KEYS, keys.rotate_key, "overlap", is_once=True, is_sensitive=True
    ),
}

blueprint = Blueprint("dashboard_people", __name__, url_prefix="/admin/ui/orgs/<slug>")
_Route = Callable[..., Awaitable[ResponseReturnValue]]


def _shown(page: OrgPage) -> _Route:
    @receives(DashboardServices)
    async def show(services: DashboardServices, slug: str) -> ResponseReturnValue:
        caller, org = await services.authorize(slug, Capability.ORG_ADMIN)
        return await page.show(services, caller, org)

    return show


def _submitted(form: _Form) -> _Route:
    @receives(DashboardServices)
    async def run(
        services: DashboardServices, /, slug: str, **variables: str
    ) -> ResponseReturnValue:
        step = partial(form.step, **variables)
        return await submit(
            services,
            slug,
            form.page,
            step,
            form.field,
            is_once=form.is_once,
            is_sensitive=form.is_sensitive,
        )

    return run


for name, (path, page) in _PAGES.items():
    blueprint.add_url_rule(path, name, _shown(page), methods=["GET"])
for name, form in _FORMS.items():
    blueprint.add_url_rule(form.path, name, _submitted(form), methods=["POST"])
