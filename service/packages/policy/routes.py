"""The endpoints for install policies."""

import re
from typing import Final

from quart import Blueprint, Request, Response, request
from quart.typing import ResponseReturnValue

from analytics.model.filters import only
from service.access.roles import Capability
from service.audit.tenant_log import open_log
from service.core.errors import (
    BODY_REFUSALS,
    QUERY_REFUSALS,
    Forbidden,
    Invalid,
    NotAnObject,
    OrgNotFound,
    PolicyMoved,
    Refusal,
    RevisionMissing,
    RevisionNotFound,
    UnknownParameter,
)
from service.core.threads import in_thread
from service.packages.policy.changes import set_policy
from service.packages.policy.check import check_release, parse_check
from service.packages.policy.document import DOCUMENT_EXAMPLE, PolicyDocument
from service.packages.policy.forms import (
    CHECK_EXAMPLE,
    CheckForm,
    CheckRequest,
    IfMatch,
    PolicyForm,
    PolicyQuery,
    PreviewForm,
    check_form,
    policy_form,
    preview_form,
)
from service.packages.policy.parsing import parse_policy
from service.packages.policy.preview import preview_policy
from service.packages.policy.repository import find_revision
from service.packages.policy.services import PolicyServices
from service.web.dependencies import receives
from service.web.documentation import MEMBERS, Tag, documented
from service.web.request_parsing import json_object, query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("policy", __name__, url_prefix="/api/v1/admin/orgs/<slug>/policy")

PREVIEW_MAX_S: Final = 10.0
_REVISION: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_ETAG: Final = re.compile(r'(?:W/)?"(0|[1-9][0-9]{0,8})"', re.ASCII)
_BODY: Final[tuple[type[Refusal], ...]] = (
    Invalid,
    NotAnObject,
    UnknownParameter,
    Forbidden,
    OrgNotFound,
    *BODY_REFUSALS,
)


@blueprint.get("")
@documented(
    "get_policy",
    Tag.POLICY,
    answers={200: PolicyForm},
    querystring=PolicyQuery,
    refusals=[Invalid, UnknownParameter, Forbidden, OrgNotFound, RevisionNotFound],
    headers={"etag": "The revision, for `If-Match`."},
)
@receives(PolicyServices)
async def show(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """Show the organisation's install policy: the one in force, or an older revision."""
    _, org = await services.access.authorize(slug, Capability.POLICY_READ)
    text = only(query_parameters(request, ("revision",)), "revision")
    if text is not None and not _REVISION.fullmatch(text):
        raise Invalid("revision must be a positive integer", field="revision")
    async with services.store.read() as session:
        revision = await find_revision(session, org.id, None if text is None else int(text))
    if text is not None and revision is None:
        raise RevisionNotFound
    return _with_etag(policy_form(slug, revision))


@blueprint.put("")
@documented(
    "set_policy",
    Tag.POLICY,
    answers={200: PolicyForm},
    request=PolicyDocument,
    request_example=DOCUMENT_EXAMPLE,
    request_headers=IfMatch,
    refusals=[*_BODY, PolicyMoved, RevisionMissing],
    headers={"etag": "The revision, for `If-Match`."},
    credentials=MEMBERS,
)
@receives(PolicyServices)
async def replace(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """Replace the policy; after a 200 it holds for the next install in every process."""
    caller, org = await services.access.authorize(slug, Capability.POLICY_WRITE)
    query_parameters(request, ())
    replaces = _replaced_revision(request)
    policy = await in_thread(parse_policy, await json_object(request))
    async with services.access.change(caller, org, Capability.POLICY_WRITE) as (work, caller, org):
        revision = await set_policy(work, org, policy, caller.audit_context, replaces=replaces)
    return _with_etag(policy_form(slug, revision))


@blueprint.post("/check")
@documented(
    "check_release",
    Tag.POLICY,
    answers={200: CheckForm},
    request=CheckRequest,
    request_example=CHECK_EXAMPLE,
    refusals=_BODY,
)
@receives(PolicyServices)
async def check(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """Whether a release would be allowed now, and why. Nothing is recorded."""
    _, org = await services.access.authorize(slug, Capability.POLICY_READ)
    query_parameters(request, ())
    release = parse_check(await json_object(request))
    policy = await services.book.of(org, release.ecosystem, release.name)
    verdict = check_release(policy, release, services.clock())
    return json_answer(check_form(slug, verdict, policy.mode))


@blueprint.post("/preview")
@documented(
    "preview_policy",
    Tag.POLICY,
    answers={200: PreviewForm},
    request=PolicyDocument,
    request_example=DOCUMENT_EXAMPLE,
    refusals=[*_BODY, *QUERY_REFUSALS],
)
@receives(PolicyServices)
async def preview(services: PolicyServices, slug: str) -> ResponseReturnValue:
    """What a policy would have done to the installs of the last 30 days. Nothing is changed."""
    _, org = await services.access.authorize(slug, Capability.POLICY_READ)
    query_parameters(request, ())
    policy = await in_thread(parse_policy, await json_object(request))
    now = services.clock()
    log = await open_log(services.store, services.lake, org, now)
    previewed = await preview_policy(
        log, policy, services.dates, services.worker, now, PREVIEW_MAX_S
    )
    return json_answer(preview_form(slug, previewed))


def _replaced_revision(request: Request) -> int | None:
    """The revision in `If-Match`, None for any. Raises RevisionMissing, Invalid."""
    values = request.headers.getlist("if-match")
    if not values:
        raise RevisionMissing
    if values == ["*"]:
        return None
    match = _ETAG.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        raise Invalid('If-Match must be one ETag such as "3", or *', field="if-match")
    return int(match[1])


def _with_etag(form: PolicyForm) -> Response:
    answer = json_answer(form)
    answer.set_etag(str(form.revision))
    return answer
