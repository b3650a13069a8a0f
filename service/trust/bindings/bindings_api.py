"""The endpoints of bindings: camelCase, timestamps with milliseconds."""

from typing import Annotated, Any, Final, Literal, Self

from msgspec import UNSET, Meta, Raw, Struct
from quart import Response

from analytics.model.filters import only
from service.access.roles import Capability
from service.ci.providers import CI_LABELS, CONDITION_CLAIMS, CONDITION_VALUE_MAX
from service.core.errors import ReasonInvalid
from service.core.text_rules import REASON_MAX, REFUSED_CHARACTERS, parse_reason
from service.store.tables import Binding
from service.trust.bindings.changes import add_binding, replace_binding, revoke_binding
from service.trust.bindings.listing import (
    LIMIT_MAX,
    PAGE_ROWS,
    ListRequest,
    list_matching,
    parse_list,
)
from service.trust.bindings.repository import get_binding, list_ineffective
from service.trust.bindings.repository_revocation import (
    RevocationRequest,
    parse_revocation,
    revoke_repository,
)
from service.trust.bindings.rules import (
    EVENT_NAME_MAX,
    EVENT_NAMES_MAX,
    REPOSITORY_ID_DIGITS_MAX,
    SUB_PATTERN_MAX,
)
from service.trust.bindings.services import BindingServices
from service.trust.refusals import (
    BINDING_IDS_NOT_STRINGS,
    CREATE_REFUSALS,
    ISSUER_MISSING,
    ISSUER_NOT_ALLOWED,
    NO_SUCH_BINDING,
    REPOSITORY_CHANGED,
    REPOSITORY_ID_MISSING,
    REPOSITORY_ID_NOT_DIGITS,
    REPOSITORY_ID_NOT_INTEGER,
    REPOSITORY_NOT_BOUND,
    BindingExists,
    BindingNotFound,
)
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import (
    Answer,
    InstantOrDate,
    Omittable,
    PageCursor,
    Parsed,
    ParsedQuery,
    TimestampMs,
)
from service.web.refusals import INVALID_CURSOR, NOT_AN_OBJECT, UNKNOWN_FIELD
from service.web.responses import encoded, json_answer

resource = Resource("bindings", "/oidc-bindings", Tag.BINDINGS, BindingServices)

PLAIN_PATTERN: Final = f"^[^{REFUSED_CHARACTERS}]+$"

BindingId = Annotated[
    str, Meta(description="Prefix `obind_`.", examples=["obind_7f3k9m2p4q8r1s5t"])
]
IssuerUrl = Annotated[
    str,
    Meta(
        min_length=1,
        description="Issuer URL; must be on the allowlist.",
        examples=["https://token.actions.githubusercontent.com"],
    ),
]
Sub = Annotated[
    str,
    Meta(
        description="The full `sub` claim, compared exactly.",
        examples=["repo:acme/payments:ref:refs/heads/main"],
    ),
]
PrincipalName = Annotated[
    str,
    Meta(
        description="`system:admin-token`, `system:cli` or `<identity provider>:<member id>`.",
        examples=["github:mem_2b4d6f8h0j1k3m5n"],
    ),
]


ExactSub = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=SUB_PATTERN_MAX,
        pattern=PLAIN_PATTERN,
        description="The full `sub` claim. No wildcards, no whitespace.",
    ),
]
RepositoryId = Annotated[str, Meta(pattern=r"^0*[1-9][0-9]*$", max_length=REPOSITORY_ID_DIGITS_MAX)]
RepositoryNumber = Annotated[
    int, Meta(ge=1, extra_json_schema={"maximum": 10**REPOSITORY_ID_DIGITS_MAX - 1})
]
EventNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=EVENT_NAME_MAX, pattern=PLAIN_PATTERN)]],
    Meta(max_length=EVENT_NAMES_MAX),
]
Conditions = Annotated[
    dict[str, Annotated[str, Meta(min_length=1, max_length=CONDITION_VALUE_MAX)]],
    Meta(
        description="Claims that the token must have besides, with their exact values. "
        + "; ".join(f"{CI_LABELS[name]}: {', '.join(c)}" for name, c in CONDITION_CLAIMS.items())
    ),
]
TeamId = Annotated[str, Meta(description="The team of a `team_admin` binding.")]
# Narrower than the check itself, which also accepts other white space.
RevocationReason = Annotated[
    str, Meta(max_length=REASON_MAX, pattern=f"^([^{REFUSED_CHARACTERS}]| )*$")
]


class BindingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The CI identity to trust."""

    issuer: IssuerUrl
    sub_pattern: ExactSub
    repository_id: Annotated[
        RepositoryId | RepositoryNumber,
        Meta(description="Numeric repository id; required by some issuers."),
    ]
    origin: Literal["org_admin", "team_admin"]
    event_names: Annotated[EventNames, Meta(description="Empty or missing: any event.")] | None = (
        None
    )
    project_id: (
        Annotated[str, Meta(description="Limits the binding to one project's API keys.")] | None
    ) = None
    team_id: TeamId | None = None
    conditions: Conditions | None = None


REQUEST_EXAMPLE: Final = {
    "issuer": "https://token.actions.githubusercontent.com",
    "sub_pattern": "repo:acme/payments:ref:refs/heads/main",
    "repository_id": "123456789",
    "event_names": ["push", "workflow_dispatch"],
    "origin": "org_admin",
}


REPLACE_EXAMPLE: Final = {"event_names": ["push", "workflow_dispatch", "schedule"]}


class ReplaceRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """What changes; fields that are missing are taken over from the replaced binding."""

    issuer: Omittable[Annotated[str, Meta(description="As in a create.")]] = UNSET
    sub_pattern: Omittable[ExactSub] = UNSET
    repository_id: Omittable[RepositoryId] = UNSET
    event_names: Omittable[
        Annotated[EventNames, Meta(description="Empty or null: any event.")] | None
    ] = UNSET
    origin: Omittable[Literal["org_admin", "team_admin"]] = UNSET
    project_id: Omittable[
        Annotated[str, Meta(description="A project of the organisation; null: no limit.")] | None
    ] = UNSET
    team_id: Omittable[TeamId | None] = UNSET
    conditions: Omittable[
        Annotated[Conditions | None, Meta(description="Empty or null: none.")]
    ] = UNSET
    reason: Omittable[
        Annotated[
            RevocationReason,
            Meta(description="Why; stored with the replaced binding after `replaced by <id>: `."),
        ]
        | None
    ] = UNSET


class RevokeRepositoryRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The repository whose active bindings are revoked."""

    issuer: IssuerUrl
    repository_id: RepositoryId | RepositoryNumber
    reason: (
        Annotated[RevocationReason, Meta(description="Why; stored with each binding.")] | None
    ) = None
    binding_ids: (
        Annotated[
            list[str], Meta(description="If given, exactly these must be active; otherwise 409.")
        ]
        | None
    ) = None


REVOKE_REPOSITORY_EXAMPLE: Final = {
    "issuer": "https://token.actions.githubusercontent.com",
    "repository_id": "123456789",
    "reason": "the repository is compromised",
}


class ListQuery(Struct, kw_only=True):
    """Which bindings to list; by default all, in one answer."""

    state: Omittable[
        Annotated[Literal["active", "revoked"], Meta(description="Only bindings in this state.")]
    ] = UNSET
    asOf: Omittable[  # noqa: N815 - beside camelCase answers
        Annotated[
            InstantOrDate,
            Meta(
                description="Only those that were active (or in `state`) at this instant; a date is"
                " its first instant, UTC."
            ),
        ]
    ] = UNSET
    active: Omittable[
        Annotated[
            bool,
            Meta(description="`true` is `state=active`, `false` is `state=revoked`."),
        ]
    ] = UNSET
    issuer: Omittable[Annotated[str, Meta(description="Only of this issuer.")]] = UNSET
    sub: Omittable[
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=SUB_PATTERN_MAX,
                description="Only with exactly this `subPattern`.",
            ),
        ]
    ] = UNSET
    repository_id: Omittable[
        Annotated[RepositoryId, Meta(description="Only of this repository; ids differ by issuer.")]
    ] = UNSET
    limit: Omittable[
        Annotated[
            int,
            Meta(
                ge=1,
                le=LIMIT_MAX,
                description=f"At most so many; with `cursor` alone {PAGE_ROWS}. Without: all.",
            ),
        ]
    ] = UNSET
    cursor: Omittable[PageCursor] = UNSET


class RevokeQuery(Struct, kw_only=True):
    """Why the binding is revoked."""

    reason: Omittable[
        Annotated[RevocationReason, Meta(description="Stored with the binding as `revokedReason`.")]
    ] = UNSET


class CreatedBinding(Answer, kw_only=True, rename="camel"):
    """The binding that was created."""

    id: BindingId
    issuer: IssuerUrl
    sub_pattern: Sub
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    added_at: TimestampMs

    @property
    def location(self) -> str:
        """Where the binding is read."""
        return f"/{self.id}"


class ReplacedBinding(CreatedBinding, kw_only=True, rename="camel"):
    """The binding that was created, and the one that it replaces."""

    replaces: BindingId


class ListedBinding(Answer, kw_only=True, rename="camel"):
    """A binding with all its fields."""

    id: BindingId
    project_id: str | None
    team_id: str | None
    issuer: IssuerUrl
    sub_pattern: Sub
    repository_id: str | None
    event_names: list[str]
    origin: Literal["org_admin", "team_admin", "platform_admin"]
    added_by: PrincipalName
    added_at: TimestampMs
    revoked_at: TimestampMs | None
    revoked_by: PrincipalName | None
    revoked_reason: str | None
    last_used_at: TimestampMs | None
    use_count: int
    conditions: Omittable[Conditions] = UNSET

    @classmethod
    def of(cls, binding: Binding, **further: object) -> Self:
        """The representation of `binding`, with the `further` fields of a subclass."""
        return cls.from_row(binding, conditions=binding.conditions or UNSET, **further)


class BindingDetail(ListedBinding, kw_only=True, rename="camel"):
    """A binding with all its fields, and whether it matches tokens now."""

    effective: Annotated[
        bool,
        Meta(description="False if revoked, or if a team's binding lost its org_admin envelope."),
    ]
    ineffective_reason: str | None


class BindingList(Answer):
    """An organisation's bindings, newest first; `count` is the number of those in this answer.

    `next_cursor` is there only if `limit` or `cursor` was given, and null on the last page.
    """

    org: str
    count: int
    bindings: list[ListedBinding]
    next_cursor: Omittable[BindingId | None] = UNSET


class Revoked(Answer):
    """The binding that was revoked."""

    revoked: BindingId


class RevokedRepository(Answer):
    """The bindings that were revoked, newest first; `count` is their number."""

    count: int
    revoked: list[BindingId]


@resource.get(
    "list_bindings",
    needs=Capability.OIDC_READ,
    query=ParsedQuery(ListQuery, parse_list),
    returns=BindingList,
    refuses=[REPOSITORY_ID_NOT_DIGITS, INVALID_CURSOR],
)
async def list_(call: Call[BindingServices], query: ListRequest) -> Response:
    """List the bindings of the organisation, active and revoked, newest first."""
    entries: list[tuple[str, Raw]] = []
    async with call.read() as session:
        async for bindings in list_matching(session, call.org.id, query):
            # Encoded part by part: a list may be long.
            entries += [(each.id, encoded(ListedBinding.of(each))) for each in bindings]
    shown = entries[: query.limit]
    answer: dict[str, Any] = {
        "org": call.org.slug,
        "count": len(shown),
        "bindings": [entry for _, entry in shown],
    }
    if query.limit is not None:
        answer["next_cursor"] = shown[-1][0] if len(entries) > len(shown) else None
    return json_answer(answer)


@resource.post(
    "create_binding",
    needs=Capability.OIDC_WRITE,
    body=Parsed(BindingRequest, dict[str, Any], refuses=CREATE_REFUSALS),
    example=REQUEST_EXAMPLE,
    returns=CreatedBinding,
    status=201,
    headers={"location": "The URL of the binding, see `GET`."},
    refuses=[BindingExists],
)
async def create(call: WriteCall[BindingServices], body: dict[str, Any]) -> CreatedBinding:
    """Trust one CI identity; after a 201 both the binding and its audit row are durable."""
    return CreatedBinding.from_row(
        await add_binding(call.work, call.org, body, call.caller, call.services.issuers)
    )


@resource.get(
    "get_binding",
    "/<binding:binding_id>",
    needs=Capability.OIDC_READ,
    returns=BindingDetail,
    refuses=[NO_SUCH_BINDING],
)
async def show(call: Call[BindingServices], binding_id: str) -> BindingDetail:
    """Show one binding of the organisation, active or revoked, and whether it matches tokens."""
    async with call.read() as session:
        binding = await get_binding(session, call.org.id, binding_id)
        reasons = await list_ineffective(session, call.org.id, [binding])
    reason = reasons.get(binding_id)
    return BindingDetail.of(binding, effective=reason is None, ineffective_reason=reason)


@resource.post(
    "replace_binding",
    "/<binding:binding_id>/replace",
    needs=Capability.OIDC_WRITE,
    body=Parsed(ReplaceRequest, dict[str, Any], refuses=[*CREATE_REFUSALS, ReasonInvalid]),
    example=REPLACE_EXAMPLE,
    returns=ReplacedBinding,
    status=201,
    headers={"location": "The URL of the new binding, see `GET`."},
    refuses=[BindingNotFound, BindingExists],
)
async def replace(
    call: WriteCall[BindingServices], body: dict[str, Any], binding_id: str
) -> ReplacedBinding:
    """Revoke a binding and create its successor at once; what is not given is taken over."""
    successor = await replace_binding(
        call.work, call.org, binding_id, body, call.caller, call.services.issuers
    )
    return ReplacedBinding.from_row(successor, replaces=binding_id)


@resource.post(
    "revoke_repository_bindings",
    "/revoke",
    needs=Capability.OIDC_WRITE,
    body=Parsed(
        RevokeRepositoryRequest,
        parse_revocation,
        refuses=[
            NOT_AN_OBJECT,
            ISSUER_MISSING,
            ISSUER_NOT_ALLOWED,
            REPOSITORY_ID_MISSING,
            REPOSITORY_ID_NOT_DIGITS,
            REPOSITORY_ID_NOT_INTEGER,
            ReasonInvalid,
            BINDING_IDS_NOT_STRINGS,
            UNKNOWN_FIELD,
        ],
    ),
    example=REVOKE_REPOSITORY_EXAMPLE,
    returns=RevokedRepository,
    refuses=[REPOSITORY_NOT_BOUND, REPOSITORY_CHANGED],
)
async def revoke_all(
    call: WriteCall[BindingServices], revocation: RevocationRequest
) -> RevokedRepository:
    """Revoke all active bindings of a repository permanently, all or none of them."""
    revoked = await revoke_repository(call.work, call.org, revocation, call.caller)
    return RevokedRepository(count=len(revoked), revoked=list(revoked))


@resource.delete(
    "revoke_binding",
    "/<binding:binding_id>",
    needs=Capability.OIDC_WRITE,
    query=ParsedQuery(
        RevokeQuery, lambda given: parse_reason(only(given, "reason")), refuses=[ReasonInvalid]
    ),
    returns=Revoked,
    refuses=[BindingNotFound],
)
async def revoke(call: WriteCall[BindingServices], reason: str | None, binding_id: str) -> Revoked:
    """Revoke a binding permanently; its row stays, so that the history of trust can be replayed."""
    await revoke_binding(call.work, call.org, binding_id, reason, call.caller)
    return Revoked(revoked=binding_id)
