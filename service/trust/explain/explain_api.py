"""The endpoint that explains tokens: answers in camelCase, values of limited length."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from service.access.roles import Capability
from service.ci.verifier.codes import Detail, FailureCode
from service.core.errors import (
    ClaimsNotObject,
    NeitherTokenNorClaims,
    ProjectIdNotString,
    ProjectNotFound,
    TokenNotString,
    UnknownField,
)
from service.trust.bindings.bindings_api import BindingId
from service.trust.bindings.services import BindingServices
from service.trust.explain.explanation import Explanation
from service.trust.explain.proposals import Proposal
from service.trust.explain.service import Asked, explain_asked, parse_asked
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import Answer, Parsed
from service.web.parameter_types import Omittable, TimestampMs


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


class Difference(Struct, kw_only=True, rename="camel"):
    """The first difference of two texts; at an end, character is empty and code point null."""

    compared_with: str
    at: Annotated[int, Meta(description="In code points, from 0.")]
    expected: str
    found: str
    expected_code_point: str | None
    found_code_point: str | None
    hint: str | None


class RuleOutcome(Struct, kw_only=True, rename="camel"):
    """One of the seven rules and its outcome."""

    rule: Annotated[int, Meta(ge=1, le=7)]
    name: Literal["issuer", "audience", "subject", "repository", "event", "signature", "time"]
    status: Literal["passed", "failed", "not_reached"]
    expected: str | list[str] | None
    found: str | list[str] | None
    difference: Difference | None
    note: str | None


class TimeOutcome(Struct, kw_only=True, rename="camel"):
    """A time claim compared with now; `aheadS` is negative for the past."""

    claim: Literal["exp", "iat", "nbf"]
    found: str | None
    instant: str | None
    ahead_s: float | None
    holds: bool


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


class ProposalForm(Struct, kw_only=True, rename="camel"):
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


class ExplanationForm(Answer, kw_only=True, rename="camel"):
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
    rules: list[RuleOutcome]
    times: list[TimeOutcome]
    nearest: list[NearBinding]
    proposal: ProposalForm | None


@resource.post_read(
    "explain_token",
    needs=Capability.OIDC_READ,
    body=Parsed(
        ExplainRequest,
        parse_asked,
        refuses=[
            NeitherTokenNorClaims,
            TokenNotString,
            ClaimsNotObject,
            ProjectIdNotString,
            UnknownField,
            ProjectNotFound,
        ],
    ),
    example=REQUEST_EXAMPLE,
    returns=ExplanationForm,
)
async def explain(call: Call[BindingServices], asked: Asked) -> ExplanationForm:
    """Explain why a CI token is or is not trusted, and propose a binding; nothing is stored."""
    return explanation_form(await explain_asked(call.services, asked, call.org))


def explanation_form(explanation: Explanation) -> ExplanationForm:
    """`explanation` in the API's representation."""
    return msgspec.convert(explanation, ExplanationForm, from_attributes=True)


def proposal_form(proposal: Proposal) -> ProposalForm:
    """`proposal` in the API's representation."""
    return msgspec.convert(proposal, ProposalForm, from_attributes=True)
