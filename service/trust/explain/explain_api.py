"""The endpoint that explains a token or claims with the bindings and the issuer's keys.

The input is not stored, logged or counted.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from service.access.roles import Capability
from service.ci.issuers.jwks import SigningKeys
from service.ci.issuers.key_source import KeysFor
from service.ci.verifier.candidates import candidates_of
from service.ci.verifier.claims import UnverifiedToken
from service.ci.verifier.codes import Detail, FailureCode, TokenRejected
from service.ci.verifier.parsing import parse_token, read_header
from service.ci.verifier.rules import VerificationContext, match_binding
from service.ci.verifier.signatures import unverified_kid
from service.core.threads import in_thread
from service.store.batching import rows_of
from service.store.tables import Binding, Organisation
from service.trust.bindings.bindings_api import BindingId, Conditions
from service.trust.bindings.repository import find_projects_and_teams
from service.trust.bindings.services import BindingServices
from service.trust.explain.evaluation import KnownBinding, active_terms
from service.trust.explain.explanation import (
    ExplainedRule,
    Explanation,
    TimeClaim,
    explain_no_token,
    explain_token,
)
from service.trust.explain.proposals import Proposal
from service.trust.explain.text_diff import Difference
from service.trust.refusals import (
    CLAIMS_NOT_OBJECT,
    NEITHER_TOKEN_NOR_CLAIMS,
    PROJECT_ID_NOT_STRING,
    PROJECT_NOT_FOUND,
    TOKEN_NOT_STRING,
)
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, Omittable, Parsed, TimestampMs
from service.web.refusals import UNKNOWN_FIELD


class ExplainBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A token or the claims of one; exactly one of the two."""

    token: Omittable[
        Annotated[
            str,
            Meta(description="A CI token as the header carries it. It is not stored or logged."),
        ]
    ] = UNSET
    claims: Omittable[
        Annotated[dict[str, Any], Meta(description="Claims to explain without a token.")]
    ] = UNSET
    project_id: (
        Annotated[str, Meta(description="Explain it as for a request with this project's API key.")]
        | None
    ) = None


ExplainRequest = Annotated[
    ExplainBody,
    Meta(
        extra_json_schema={
            "oneOf": [
                {"required": [name], "properties": {name: {}}} for name in ("token", "claims")
            ]
        }
    ),
]

resource = Resource("explain", "/oidc-bindings/explain", Tag.BINDINGS, BindingServices)

REQUEST_EXAMPLE: Final = {
    "claims": {
        "iss": "https://token.actions.githubusercontent.com",
        "aud": "countersign",
        "sub": "repo:acme/payments:ref:refs/heads/main",
        "repository_owner": "acme",
        "repository_id": "123456789",
        "event_name": "push",
        "exp": 1_893_456_000,
    }
}


class NearBinding(Struct, kw_only=True, rename="camel"):
    """A binding that nearly matches."""

    id: BindingId
    state: Literal["active", "revoked"]
    sub_pattern: str
    repository_id: str | None
    why: str
    difference: Difference | None


class DraftBody(Struct, kw_only=True):
    """The request body that creates the binding, or replaces another one."""

    issuer: str
    sub_pattern: str
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin"]
    project_id: str | None
    conditions: Omittable[Conditions] = UNSET


class ProposedBinding(Struct, kw_only=True, rename="camel"):
    """A binding that would make the token trusted."""

    body: DraftBody
    replaces: Annotated[
        BindingId | None,
        Meta(description="Send `body` to this binding's replace endpoint; null: create with it."),
    ]
    beside: Annotated[
        DraftBody | None,
        Meta(description="The body of a create that leaves the binding in `replaces` as it is."),
    ]
    review: Annotated[str, Meta(description="What to check before creating it.")]


class ExplainedToken(Answer, kw_only=True, rename="camel"):
    """Why a token is or is not trusted."""

    passes: bool
    code: FailureCode | None
    detail: Detail | None
    reason: str | None
    binding: BindingId | None
    signature_checked: Annotated[
        bool, Meta(description="False: the claims are unconfirmed and may be forged.")
    ]
    now: TimestampMs
    rules: list[ExplainedRule]
    times: list[TimeClaim]
    nearest: list[NearBinding]
    proposal: ProposedBinding | None


_FIELDS = frozenset({"token", "claims", "project_id"})


@dataclass(frozen=True, slots=True)
class ExplainInput:
    """The input to explain: a token as it was sent, or claims encoded as an unsigned token.

    `project_id` is the project of the API key that the request would carry.
    """

    unverified_compact: str
    has_signature: bool
    project_id: str | None = None

    @classmethod
    def from_claims(cls, claims: bytes, project_id: str | None = None) -> Self:
        """Claims as JSON; input that is malformed in a token is malformed here too."""
        segments = (
            base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b"{}", claims)
        )
        return cls(".".join((*segments, "")), has_signature=False, project_id=project_id)


def parse_input(body: Mapping[str, Any]) -> ExplainInput:
    """The input in the request `body`. Raises Invalid."""
    if ("token" in body) == ("claims" in body):
        raise NEITHER_TOKEN_NOR_CLAIMS
    token, claims, project_id = (body.get(name) for name in ("token", "claims", "project_id"))
    if "token" in body and not isinstance(token, str):
        raise TOKEN_NOT_STRING
    if "claims" in body and not isinstance(claims, dict):
        raise CLAIMS_NOT_OBJECT
    if project_id is not None and not isinstance(project_id, str):
        raise PROJECT_ID_NOT_STRING
    unknown = [name for name in body if name not in _FIELDS]
    if unknown:
        raise UNKNOWN_FIELD(value=", ".join(unknown))
    if token is not None:
        return ExplainInput(token, has_signature=True, project_id=project_id)
    # Lone surrogates are passed on unchanged, so that the token parser reports them.
    text = json.dumps(claims, ensure_ascii=False, separators=(",", ":"))
    return ExplainInput.from_claims(text.encode(errors="surrogatepass"), project_id)


@resource.post_read(
    "explain_token",
    needs=Capability.OIDC_READ,
    body=Parsed(
        ExplainRequest,
        parse_input,
        refuses=[
            NEITHER_TOKEN_NOR_CLAIMS,
            TOKEN_NOT_STRING,
            CLAIMS_NOT_OBJECT,
            PROJECT_ID_NOT_STRING,
            UNKNOWN_FIELD,
            PROJECT_NOT_FOUND,
        ],
    ),
    example=REQUEST_EXAMPLE,
    returns=ExplainedToken,
)
async def explain(call: Call[BindingServices], source: ExplainInput) -> ExplainedToken:
    """Explain why a CI token is or is not trusted, and propose a binding; nothing is stored."""
    return explanation_form(await explain_input(call.services, source, call.org))


def explanation_form(explanation: Explanation) -> ExplainedToken:
    """`explanation` in the API's representation."""
    return msgspec.convert(explanation, ExplainedToken, from_attributes=True)


def proposal_form(proposal: Proposal) -> ProposedBinding:
    """`proposal` in the API's representation."""
    return msgspec.convert(proposal, ProposedBinding, from_attributes=True)


async def explain_input(
    services: BindingServices, source: ExplainInput, org: Organisation
) -> Explanation:
    """Why a request of `org` with this token would or would not be trusted now.

    Raises PROJECT_NOT_FOUND.
    """
    async with services.store.read() as session:
        known = await find_projects_and_teams(session, org.id, source.project_id)
        if source.project_id is not None and source.project_id not in known.projects:
            raise PROJECT_NOT_FOUND
        bindings = await list_known_bindings(session, org.id)
    now = services.clock()
    try:
        token = parse_token(read_header([source.unverified_compact]))
    except TokenRejected as rejection:
        return explain_no_token(rejection, now)
    active = active_terms(bindings, token.unverified_claims.text("sub"))
    context = VerificationContext(
        issuers=services.issuers,
        audience=services.settings.audience,
        candidates=candidates_of(active),
        project_id=source.project_id,
    )
    # Outside the transaction: the issuer may take seconds to answer.
    keys = await _keys(token, context, services.keys_for) if source.has_signature else None
    # In a thread: a token that nearly matches is compared with each of ten thousand bindings.
    return await in_thread(explain_token, token, context, bindings, keys, now)


async def _keys(
    token: UnverifiedToken, context: VerificationContext, keys_for: KeysFor
) -> SigningKeys:
    """The keys for rule 6; empty, without a request to the issuer, if an earlier rule fails."""
    try:
        issuer, _ = match_binding(token.unverified_claims, context)
    except TokenRejected:
        return SigningKeys()
    kid = unverified_kid(token, issuer.algorithms)
    return SigningKeys() if kid is None else await keys_for(issuer, kid)


async def list_known_bindings(session: AsyncSession, tenant_id: str) -> Sequence[KnownBinding]:
    """All of the organisation's bindings.

    Reads columns instead of mapped objects: an explanation may compare ten thousand bindings.
    """
    columns = [getattr(Binding, field.name) for field in fields(KnownBinding)]
    return await rows_of(
        session, select(*columns).where(Binding.tenant_id == tenant_id), KnownBinding
    )
