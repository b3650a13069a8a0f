"""Projects: what bindings and API keys can be limited to."""

from functools import partial
from typing import Annotated, Final

from msgspec import Meta

from analytics.model.org_envelopes import ProjectCreated
from analytics.model.rows import AuditContext
from service.access.roles import Capability
from service.core.errors import Conflict
from service.core.ids import new_id
from service.core.text_rules import NAME_MAX, check_name
from service.store.organisations import find_named, list_named_from
from service.store.store import UnitOfWork
from service.store.tables import Organisation, Project
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Request, TimestampMs
from service.web.paging import ListCursors, PageQuery, list_page

_ADMIN: Final = Capability.ORG_ADMIN

resource = Resource("projects", "/projects", Tag.ORGANISATION, BaseServices)


class NewProject(Request):
    """A project to create."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_MAX})]


class ProjectEntry(Answer):
    """A project."""

    id: str
    name: str
    created_at: TimestampMs


class ProjectList(Answer):
    """The organisation's projects, by name. `next_cursor` is null on the last page."""

    org: str
    projects: list[ProjectEntry]
    next_cursor: str | None


@resource.get("list_projects", needs=_ADMIN, query=PageQuery, returns=ProjectList)
async def list_(call: Call[BaseServices], query: PageQuery) -> ProjectList:
    """List the organisation's projects, by name."""
    cursors = ListCursors.of(call.services.settings, "projects", call.org.id, query.find)
    async with call.read() as session:
        load = partial(list_named_from, session, call.org, Project)
        projects, next_cursor = await list_page(cursors, query, load, lambda row: row.name)
    listed = list(map(ProjectEntry.from_row, projects))
    return ProjectList(org=call.org.slug, projects=listed, next_cursor=next_cursor)


@resource.post(
    "create_project",
    needs=_ADMIN,
    body=NewProject,
    example={"name": "checkout"},
    returns=ProjectEntry,
    status=201,
    refuses=[Conflict],
)
async def create(call: WriteCall[BaseServices], body: NewProject) -> ProjectEntry:
    """Create a project."""
    return ProjectEntry.from_row(await create_project(call.work, call.org, body.name, call.by))


async def create_project(
    work: UnitOfWork, org: Organisation, name: str, by: AuditContext
) -> Project:
    """Create a project. Raises Invalid, Conflict."""
    check_name(name)
    if await find_named(work.session, org, Project, name) is not None:
        raise Conflict(f"project {name} already exists in {org.slug}")
    project = Project(id=new_id("proj"), tenant_id=org.id, name=name, created_at=work.now)
    work.session.add(project)
    await work.session.flush()
    work.record(org.id, ProjectCreated(project_id=project.id, name=name), by, subject=project.id)
    return project
