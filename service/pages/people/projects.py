"""The projects page: bindings and API keys can be limited to a project."""

from functools import partial

from quart import Blueprint

from service.access.roles import Capability
from service.orgs.projects import create
from service.pages.page import Page, PageCall, View, list_part
from service.store.organisations import count_live_keys, list_named_from
from service.store.tables import Project
from service.trust.bindings.repository import count_active_by_project

blueprint = Blueprint("dashboard_projects", __name__, url_prefix="/admin/ui/orgs/<slug>/projects")


@Page(
    blueprint,
    "",
    "people/projects.html",
    needs=Capability.ORG_ADMIN,
    done={"created": "The project was created. Keys and bindings can now be limited to it."},
    is_list=True,
)
async def projects_page(call: PageCall) -> View:
    """A part of the projects, by name, and how much is limited to each."""
    async with call.read() as session:
        load = partial(list_named_from, session, call.org, Project)
        part = await list_part(load, lambda project: project.name)
        ids = [project.id for project in part.rows]
        keys = await count_live_keys(session, call.org, ids, call.services.clock())
        bindings = await count_active_by_project(session, call.org.id, ids)
    return {
        "part": part,
        "rows": [
            {
                "project": project,
                "live_keys": keys.get(project.id, 0),
                "active_bindings": bindings.get(project.id, 0),
            }
            for project in part.rows
        ],
    }


projects_page.form("", "create_project", create, "created", field="name")
