"""The endpoints for exceptions: any member may ask, callers who may change the policy decide."""

from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from analytics.model.rows import VerdictSource
from service.access.roles import Capability
from service.core.errors import (
    BODY_REFUSALS,
    ExceptionDecided,
    ExceptionExists,
    ExceptionNotFound,
    Forbidden,
    Invalid,
    NotAnObject,
    OrgNotFound,
    TooManyExceptions,
    TooManyOwnExceptions,
    UnknownParameter,
)
from service.packages.policy.exception_forms import (
    DECISION_EXAMPLE,
    EXCEPTION_EXAMPLE,
    ExceptionDecision,
    ExceptionForm,
    ExceptionList,
    ExceptionQuery,
    ExceptionRequest,
    exception_form,
    exception_list,
)
from service.packages.policy.exceptions import (
    LISTED_MAX,
    STATES,
    decide_exception,
    list_exceptions,
    parse_decision,
    parse_request,
    request_exception,
)
from service.packages.policy.services import PolicyServices
from service.web.dependencies import receives
from service.web.documentation import MEMBERS, Tag, documented
from service.web.request_parsing import json_object, parse_limit, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint(
    "policy_exceptions", __name__, url_prefix="/api/v1/admin/orgs/<slug>/policy/exceptions"
)


@blueprint.get("")
@documented(
    "list_exceptions",
    Tag.POLICY,
    answers={200: ExceptionList},
    querystring=ExceptionQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound],
)
@receives(PolicyServices)
async def exceptions(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """List requests for exceptions, newest first."""
    _, org = await services.access.authorize(slug, Capability.POLICY_READ)
    parameters = query_parameters(request, ("state", "limit"))
    state = only(parameters, "state")
    if state is not None and state not in STATES:
        raise Invalid(f"state must be one of {', '.join(STATES)}", field="state")
    limit = parse_limit(only(parameters, "limit"), LISTED_MAX, LISTED_MAX)
    async with services.store.read() as session:
        listed = await list_exceptions(session, org.id, state, limit)
    return json_answer(exception_list(slug, listed))


@blueprint.post("")
@documented(
    "request_exception",
    Tag.POLICY,
    answers={201: ExceptionForm},
    request=ExceptionRequest,
    request_example=EXCEPTION_EXAMPLE,
    refusals=[
        Invalid,
        NotAnObject,
        UnknownParameter,
        Forbidden,
        OrgNotFound,
        ExceptionExists,
        TooManyExceptions,
        TooManyOwnExceptions,
        *BODY_REFUSALS,
    ],
    credentials=MEMBERS,
)
@receives(PolicyServices)
async def ask(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """Ask for a release to be let through before its cooldown ends; every member may."""
    caller, org = await services.access.authorize_member(slug, VerdictSource.ADMIN_API)
    query_parameters(request, ())
    release, reason = parse_request(await json_object(request))
    async with services.access.change_as_member(caller, org) as (work, caller, org):
        asked = await request_exception(work, org, release, reason, caller.audit_context)
        form = exception_form(asked)
    return json_answer(form, 201)


@blueprint.post("/<exception_id>/decide")
@documented(
    "decide_exception",
    Tag.POLICY,
    answers={200: ExceptionForm},
    request=ExceptionDecision,
    request_example=DECISION_EXAMPLE,
    refusals=[
        Invalid,
        NotAnObject,
        UnknownParameter,
        Forbidden,
        OrgNotFound,
        ExceptionNotFound,
        ExceptionDecided,
        *BODY_REFUSALS,
    ],
    credentials=MEMBERS,
)
@receives(PolicyServices)
async def decide(services: PolicyServices, slug: str, exception_id: str) -> ResponseReturnValue:
    """Allow a request, which adds an allow rule of its release to the policy, or decline it."""
    caller, org = await services.access.authorize(slug, Capability.POLICY_WRITE)
    query_parameters(request, ())
    state, reason = parse_decision(await json_object(request))
    async with services.access.change(caller, org, Capability.POLICY_WRITE) as (work, caller, org):
        asked = await decide_exception(work, org, exception_id, state, reason, caller.audit_context)
        form = exception_form(asked)
    return json_answer(form)
