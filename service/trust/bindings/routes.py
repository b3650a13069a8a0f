"""The binding endpoints."""

from quart import Blueprint, Response, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.roles import Capability
from service.core.errors import (
    BODY_REFUSALS,
    CREATE_REFUSALS,
    ORG_REFUSALS,
    BindingExists,
    BindingIdsNotStrings,
    BindingNotFound,
    Invalid,
    InvalidCursor,
    IssuerMissing,
    IssuerNotAllowed,
    NoSuchBinding,
    NotAnObject,
    ReasonInvalid,
    RepositoryChanged,
    RepositoryIdMissing,
    RepositoryIdNotDigits,
    RepositoryIdNotInteger,
    RepositoryNotBound,
    UnknownField,
)
from service.core.text_rules import parse_reason
from service.store.tables import Binding
from service.trust.bindings.changes import add_binding, origins_of, revoke_binding
from service.trust.bindings.effectiveness import find_ineffective_reason
from service.trust.bindings.forms import (
    REPLACE_EXAMPLE,
    REQUEST_EXAMPLE,
    REVOKE_REPOSITORY_EXAMPLE,
    BindingDetail,
    BindingList,
    BindingRequest,
    CreatedBinding,
    EncodedBindings,
    ListQuery,
    ReplacedBinding,
    ReplaceRequest,
    Revoked,
    RevokedRepository,
    RevokeQuery,
    RevokeRepositoryRequest,
    created_form,
    replaced_form,
    shown_form,
)
from service.trust.bindings.listing import PARAMETERS, list_matching, parse_list
from service.trust.bindings.replacement import replace_binding
from service.trust.bindings.repository import get_binding
from service.trust.bindings.repository_revocation import parse_revocation, revoke_repository
from service.trust.bindings.services import BindingServices
from service.web.dependencies import receives
from service.web.documentation import MEMBERS, Tag, documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("bindings", __name__, url_prefix="/api/v1/admin/orgs/<slug>")


@blueprint.get("/oidc-bindings")
@documented(
    "list_bindings",
    Tag.BINDINGS,
    answers={200: BindingList},
    querystring=ListQuery,
    refusals=[Invalid, RepositoryIdNotDigits, InvalidCursor, *ORG_REFUSALS],
)
@receives(BindingServices)
async def list_(services: BindingServices, slug: str) -> ResponseReturnValue:
    """List the bindings of the organisation, active and revoked, newest first."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    wanted = parse_list(query_parameters(request, PARAMETERS))
    entries = EncodedBindings(wanted.limit)
    async with services.store.read() as session:
        async for bindings in list_matching(session, org.id, wanted):
            entries.add(bindings)
    return json_answer(entries.answer(slug))


@blueprint.post("/oidc-bindings")
@documented(
    "create_binding",
    Tag.BINDINGS,
    answers={201: CreatedBinding},
    request=BindingRequest,
    request_example=REQUEST_EXAMPLE,
    refusals=[*CREATE_REFUSALS, *ORG_REFUSALS, BindingExists, *BODY_REFUSALS],
    headers={"location": "The URL of the binding, see `GET`."},
    credentials=MEMBERS,
)
@receives(BindingServices)
async def create(services: BindingServices, slug: str) -> ResponseReturnValue:
    """Trust one CI identity; after a 201 both the binding and its audit row are durable."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    query_parameters(request, ())
    body = await json_object(request)
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, caller, org):
        binding = await add_binding(work, org, body, caller, services.issuers, origins_of(caller))
    return _created(slug, binding, created_form(binding))


@blueprint.get("/oidc-bindings/<binding:binding_id>")
@documented(
    "get_binding",
    Tag.BINDINGS,
    answers={200: BindingDetail},
    refusals=[*ORG_REFUSALS, NoSuchBinding],
)
@receives(BindingServices)
async def show(services: BindingServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Show one binding of the organisation, active or revoked, and whether it matches tokens."""
    _, org = await services.access.authorize(slug, Capability.OIDC_READ)
    query_parameters(request, ())
    async with services.store.read() as session:
        binding = await get_binding(session, org.id, binding_id)
        ineffective_reason = await find_ineffective_reason(session, binding)
    return json_answer(shown_form(binding, ineffective_reason))


@blueprint.post("/oidc-bindings/<binding:binding_id>/replace")
@documented(
    "replace_binding",
    Tag.BINDINGS,
    answers={201: ReplacedBinding},
    request=ReplaceRequest,
    request_example=REPLACE_EXAMPLE,
    refusals=[
        *CREATE_REFUSALS,
        ReasonInvalid,
        *ORG_REFUSALS,
        BindingNotFound,
        BindingExists,
        *BODY_REFUSALS,
    ],
    headers={"location": "The URL of the new binding, see `GET`."},
    credentials=MEMBERS,
)
@receives(BindingServices)
async def replace(services: BindingServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Revoke a binding and create its successor at once; what is not given is taken over."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    query_parameters(request, ())
    body = await json_object(request)
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, caller, org):
        binding = await replace_binding(
            work, org, binding_id, body, caller, services.issuers, origins_of(caller)
        )
    return _created(slug, binding, replaced_form(binding, binding_id))


@blueprint.post("/oidc-bindings/revoke")
@documented(
    "revoke_repository_bindings",
    Tag.BINDINGS,
    answers={200: RevokedRepository},
    request=RevokeRepositoryRequest,
    request_example=REVOKE_REPOSITORY_EXAMPLE,
    refusals=[
        NotAnObject,
        IssuerMissing,
        IssuerNotAllowed,
        RepositoryIdMissing,
        RepositoryIdNotDigits,
        RepositoryIdNotInteger,
        ReasonInvalid,
        BindingIdsNotStrings,
        UnknownField,
        *ORG_REFUSALS,
        RepositoryNotBound,
        RepositoryChanged,
        *BODY_REFUSALS,
    ],
    credentials=MEMBERS,
)
@receives(BindingServices)
async def revoke_all(services: BindingServices, slug: str) -> ResponseReturnValue:
    """Revoke all active bindings of a repository permanently, all or none of them."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    query_parameters(request, ())
    wanted = parse_revocation(await json_object(request))
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, caller, org):
        revoked = await revoke_repository(work, org, wanted, caller)
    return json_answer(RevokedRepository(count=len(revoked), revoked=list(revoked)))


@blueprint.delete("/oidc-bindings/<binding:binding_id>")
@documented(
    "revoke_binding",
    Tag.BINDINGS,
    answers={200: Revoked},
    querystring=RevokeQuery,
    refusals=[ReasonInvalid, *ORG_REFUSALS, BindingNotFound],
    credentials=MEMBERS,
)
@receives(BindingServices)
async def revoke(services: BindingServices, slug: str, binding_id: str) -> ResponseReturnValue:
    """Revoke a binding permanently; its row stays, so that the history of trust can be replayed."""
    caller, org = await services.access.authorize(slug, Capability.OIDC_WRITE)
    reason = parse_reason(only(query_parameters(request, ("reason",)), "reason"))
    async with services.access.change(caller, org, Capability.OIDC_WRITE) as (work, caller, org):
        await revoke_binding(work, org, binding_id, reason, caller)
    return json_answer(Revoked(revoked=binding_id))


def _created(slug: str, binding: Binding, form: CreatedBinding) -> Response:
    answer = json_answer(form, 201)
    answer.headers["location"] = url_for("bindings.show", slug=slug, binding_id=binding.id)
    return answer
