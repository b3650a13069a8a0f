"""The projects page: bindings and API keys can be limited to a project."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import Caller
from service.orgs.changes import create_project
from service.pages.people.form_actions import Change
from service.pages.people.page import PLACE, OrgPage
from service.pages.services import DashboardServices
from service.store.organisations import count_live_keys, list_named_from
from service.store.tables import Organisation, Project
from service.trust.bindings.repository import count_active_by_project


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """One project, and how much is limited to it."""

    project: Project
    live_keys: int
    active_bindings: int


async def load_projects_view(
    services: DashboardServices, session: AsyncSession, caller: Caller, org: Organisation
) -> dict[str, Any]:
    """A part of the projects, by name."""
    load = partial(list_named_from, session, org, Project)
    part = await PROJECTS.part(load, lambda project: project.name)
    ids = [project.id for project in part.rows]
    keys = await count_live_keys(session, org, ids, services.clock())
    bindings = await count_active_by_project(session, org.id, ids)
    return {
        "part": part,
        "rows": [
            ProjectRow(project, keys.get(project.id, 0), bindings.get(project.id, 0))
            for project in part.rows
        ],
    }


async def create(change: Change) -> str:
    """Create a project."""
    await create_project(change.work, change.org, change.typed("name"), change.by)
    return "created"


PROJECTS: Final = OrgPage(
    endpoint="dashboard_people.projects_page",
    template="people/projects.html",
    load=load_projects_view,
    done={"created": "The project was created. Keys and bindings can now be limited to it."},
    place=PLACE,
)
