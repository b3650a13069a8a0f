"""The endpoints for API keys. A key cannot use them: no scope includes org:admin."""

from dataclasses import dataclass

from quart import Blueprint, Response, request
from quart.typing import ResponseReturnValue

from service.access.authorization import Authorizer
from service.access.roles import Capability
from service.core.clock import Clock
from service.core.errors import (
    BODY_REFUSALS,
    ORG_REFUSALS,
    Conflict,
    Invalid,
    NotFound,
    SignInAgain,
)
from service.orgs.api_keys import (
    KeyTerms,
    parse_overlap,
    request_api_key,
    revoke_api_key,
    rotate_api_key,
)
from service.orgs.keys.forms import (
    REQUEST_EXAMPLE,
    ROTATION_EXAMPLE,
    ApiKeyList,
    ApiKeyRotation,
    IssuedApiKey,
    NewApiKey,
    RevokedApiKey,
    issued_key,
    key_entry,
    parse_key_request,
    parse_rotation,
)
from service.store.organisations import get_api_key, list_api_keys
from service.store.store import Store
from service.web.dependencies import receives
from service.web.documentation import MEMBERS, Tag, documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import encoded, json_answer

blueprint = Blueprint("api_keys", __name__, url_prefix="/api/v1/admin/orgs/<slug>/api-keys")


@dataclass(frozen=True, slots=True)
class ApiKeyServices:
    """The services of these endpoints."""

    clock: Clock
    access: Authorizer
    store: Store
    terms: KeyTerms


@blueprint.get("")
@documented(
    "list_api_keys",
    Tag.KEYS,
    answers={200: ApiKeyList},
    refusals=ORG_REFUSALS,
    credentials=MEMBERS,
)
@receives(ApiKeyServices)
async def list_(services: ApiKeyServices, slug: str) -> ResponseReturnValue:
    """List the organisation's API keys, newest first."""
    _, org = await services.access.authorize(slug, Capability.ORG_ADMIN)
    query_parameters(request, ())
    now = services.clock()
    async with services.store.read() as session:
        keys = await list_api_keys(session, org, lambda key: encoded(key_entry(key, now)))
    return json_answer({"org": slug, "api_keys": keys})


@blueprint.post("")
@documented(
    "issue_api_key",
    Tag.KEYS,
    answers={201: IssuedApiKey},
    request=NewApiKey,
    request_example=REQUEST_EXAMPLE,
    refusals=[Invalid, *ORG_REFUSALS, SignInAgain, NotFound, *BODY_REFUSALS],
    credentials=MEMBERS,
)
@receives(ApiKeyServices)
async def issue(services: ApiKeyServices, slug: str) -> ResponseReturnValue:
    """Issue an API key; its secret is in this answer only."""
    caller, org = await services.access.authorize(slug, Capability.ORG_ADMIN)
    query_parameters(request, ())
    asked = parse_key_request(await json_object(request))
    transaction = services.access.change(caller, org, Capability.ORG_ADMIN, is_sensitive=True)
    async with transaction as (work, by, org):
        key, secret = await request_api_key(
            work, org, asked, services.terms, by.audit_context, by.require
        )
        form = issued_key(key, secret, work.now)
    return _secret_answer(form)


@blueprint.post("/<key_id>/rotate")
@documented(
    "rotate_api_key",
    Tag.KEYS,
    answers={201: IssuedApiKey},
    request=ApiKeyRotation,
    request_example=ROTATION_EXAMPLE,
    refusals=[Invalid, *ORG_REFUSALS, SignInAgain, NotFound, Conflict, *BODY_REFUSALS],
    credentials=MEMBERS,
)
@receives(ApiKeyServices)
async def rotate(services: ApiKeyServices, slug: str, key_id: str) -> ResponseReturnValue:
    """Issue a key in place of a live one, which still works for the overlap."""
    caller, org = await services.access.authorize(slug, Capability.ORG_ADMIN)
    query_parameters(request, ())
    overlap = parse_overlap(parse_rotation(await json_object(request)))
    transaction = services.access.change(caller, org, Capability.ORG_ADMIN, is_sensitive=True)
    async with transaction as (work, by, org):
        key = await get_api_key(work.session, org, key_id)
        new, secret = await rotate_api_key(
            work, org, key, overlap, services.terms, by.audit_context, by.require
        )
        form = issued_key(new, secret, work.now, replaced=key)
    return _secret_answer(form)


@blueprint.delete("/<key_id>")
@documented(
    "revoke_api_key",
    Tag.KEYS,
    answers={200: RevokedApiKey},
    refusals=[*ORG_REFUSALS, NotFound],
    credentials=MEMBERS,
)
@receives(ApiKeyServices)
async def revoke(services: ApiKeyServices, slug: str, key_id: str) -> ResponseReturnValue:
    """Revoke an API key, with immediate effect."""
    caller, org = await services.access.authorize(slug, Capability.ORG_ADMIN)
    query_parameters(request, ())
    async with services.access.change(caller, org, Capability.ORG_ADMIN) as (work, by, org):
        key = await get_api_key(work.session, org, key_id)
        await revoke_api_key(work, org, key, by.audit_context)
    return json_answer(RevokedApiKey(revoked=key_id))


def _secret_answer(form: IssuedApiKey) -> Response:
    answer = json_answer(form, 201)
    answer.headers["cache-control"] = "no-store"
    return answer
