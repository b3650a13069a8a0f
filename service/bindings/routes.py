"""The binding endpoints."""

from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.bindings.changes import add_binding, revoke_binding
from service.bindings.forms import (
    REQUEST_EXAMPLE,
    BindingList,
    BindingRequest,
    CreatedBinding,
    ListedBinding,
    ListQuery,
    Revoked,
    RevokeQuery,
    created_form,
    list_form,
    listed_form,
)
from service.bindings.listing import parse_as_of, parse_state
from service.bindings.repository import get_binding, list_bindings
from service.bindings.services import BindingServices
from service.errors import (
    BODY_REFUSALS,
    CREATE_REFUSALS,
    BindingExists,
    BindingNotFound,
    Forbidden,
    Invalid,
    NoSuchBinding,
    OrgNotFound,
    ReasonInvalid,
    UnknownParameter,
)
from service.orgs.roles import Capability
from service.text_rules import parse_reason
from service.web.dependencies import receives
from service.web.openapi import documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("bindings", __name__, url_prefix="/api/v1/admin/orgs/<slug>")


@blueprint.get("/oidc-bindings")
@documented(
    answers={200: BindingList},
    querystring=ListQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound],
)
@receives(BindingServices)
async def list_(services: BindingServices, slug: str) -> ResponseReturnValue:
    """List every binding of the organisation, active and revoked, newest first."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    parameters = query_parameters(request, ("state", "asOf"))
    state = parse_state(only(parameters, "state"))
    as_of = parse_as_of(only(parameters, "asOf"))
    async with services.store.read() as session:
        bindings = await list_bindings(session, org.id, state, as_of)
    return json_answer(list_form(slug, bindings))


@blueprint.post("/oidc-bindings")
@documented(
    answers={201: CreatedBinding},
    request=BindingRequest,
    request_example=REQUEST_EXAMPLE,
    refusals=[
        *CREATE_REFUSALS,
        UnknownParameter,
        Forbidden,
        OrgNotFound,
        BindingExists,
        *BODY_REFUSALS,
    ],
    headers={"location": "The URL of the binding, see `GET`."},
)
@receives(BindingServices)
async def create(services: BindingServices, slug: str) -> ResponseReturnValue:
    """Trust one CI identity; after a 201 both the binding and its audit row are durable."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    query_parameters(request, ())
    body = await json_object(request)
    async with services.store.write() as work:
        caller, org = await services.access.reauthorize(
            work.session, caller, org, Capability.OIDC_WRITE
        )
        binding = await add_binding(work, org, body, caller, services.issuers)
    answer = json_answer(created_form(binding), 201)
    answer.headers["location"] = url_for("bindings.show", slug=slug, binding_id=binding.id)
    return answer


@blueprint.get("/oidc-bindings/<binding:binding_id>")
@documented(
    answers={200: ListedBinding},
    refusals=[UnknownParameter, Forbidden, OrgNotFound, NoSuchBinding],
)
@receives(BindingServices)
async def show(services: BindingServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Show one binding of the organisation, active or revoked."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    query_parameters(request, ())
    async with services.store.read() as session:
        binding = await get_binding(session, org.id, binding_id)
    return json_answer(listed_form(binding))


@blueprint.delete("/oidc-bindings/<binding:binding_id>")
@documented(
    answers={200: Revoked},
    querystring=RevokeQuery,
    refusals=[ReasonInvalid, UnknownParameter, Forbidden, OrgNotFound, BindingNotFound],
)
@receives(BindingServices)
async def revoke(services: BindingServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Revoke a binding permanently; its row stays, so that the history of trust can be replayed."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    reason = parse_reason(only(query_parameters(request, ("reason",)), "reason"))
    async with services.store.write() as work:
        caller, org = await services.access.reauthorize(
            work.session, caller, org, Capability.OIDC_WRITE
        )
        await revoke_binding(work, org, binding_id, reason, caller)
    return json_answer(Revoked(revoked=binding_id))
