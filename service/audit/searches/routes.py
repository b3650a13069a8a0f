"""The endpoints for saved searches."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from service.access.callers import ApiKeyPrincipal, Caller
from service.access.roles import Capability
from service.audit.searches.forms import (
    REQUEST_EXAMPLE,
    DeletedSearch,
    SavedSearchForm,
    SavedSearchList,
    SavedSearchRequest,
    list_form,
    parse_search_request,
    search_form,
)
from service.audit.searches.saved import delete_search, list_searches, save_search
from service.audit.services import AuditServices
from service.core.errors import (
    BODY_REFUSALS,
    ORG_REFUSALS,
    Invalid,
    KeyCannotChange,
    SearchExists,
    SearchNotFound,
    TooManySearches,
)
from service.store.tables import Organisation
from service.web.dependencies import receives
from service.web.documentation import MEMBERS, Tag, documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("searches", __name__, url_prefix="/api/v1/admin/orgs/<slug>/audit")


@blueprint.get("/searches")
@documented(
    "list_saved_searches", Tag.SEARCHES, answers={200: SavedSearchList}, refusals=ORG_REFUSALS
)
@receives(AuditServices)
async def list_(services: AuditServices, slug: str) -> ResponseReturnValue:
    """List the organisation's saved searches, by name."""
    _, org = await services.access.authorize(slug, Capability.AUDIT_READ)
    query_parameters(request, ())
    async with services.store.read() as session:
        return json_answer(list_form(slug, await list_searches(session, org.id)))


@blueprint.post("/searches")
@documented(
    "save_search",
    Tag.SEARCHES,
    answers={201: SavedSearchForm},
    request=SavedSearchRequest,
    request_example=REQUEST_EXAMPLE,
    refusals=[Invalid, *ORG_REFUSALS, SearchExists, TooManySearches, *BODY_REFUSALS],
    credentials=MEMBERS,
)
@receives(AuditServices)
async def create(services: AuditServices, slug: str) -> ResponseReturnValue:
    """Save a search for everyone in the organisation who may read its audit log."""
    caller, org = await _authorize_change(services, slug)
    query_parameters(request, ())
    name, query = parse_search_request(await json_object(request))
    async with services.access.change(caller, org, Capability.AUDIT_READ) as (work, caller, org):
        search = await save_search(work, org, name, query, caller.audit_context.actor)
        saved = search_form(search)
    return json_answer(saved, 201)


@blueprint.delete("/searches/<search_id>")
@documented(
    "delete_saved_search",
    Tag.SEARCHES,
    answers={200: DeletedSearch},
    refusals=[*ORG_REFUSALS, SearchNotFound],
    credentials=MEMBERS,
)
@receives(AuditServices)
async def delete(services: AuditServices, slug: str, search_id: str) -> ResponseReturnValue:
    """Delete a saved search of the organisation."""
    caller, org = await _authorize_change(services, slug)
    query_parameters(request, ())
    async with services.access.change(caller, org, Capability.AUDIT_READ) as (work, caller, org):
        await delete_search(work, org, search_id)
    return json_answer(DeletedSearch(deleted=search_id))


async def _authorize_change(services: AuditServices, slug: str) -> tuple[Caller, Organisation]:
    """A caller who may read the log, and change what its readers share. Raises Forbidden."""
    caller, org = await services.access.authorize(slug, Capability.AUDIT_READ)
    if isinstance(caller, ApiKeyPrincipal):
        raise KeyCannotChange
    return caller, org
