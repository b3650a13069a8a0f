"""The operator's endpoints for the bindings of a repository in all organisations."""

from collections import defaultdict
from typing import Annotated, Literal

from msgspec import Meta

from service.core.errors import Invalid
from service.core.text_rules import parse_reason
from service.store.organisations import get_org_by_id
from service.store.tables import Binding
from service.trust.bindings.bindings_api import ListedBinding
from service.trust.bindings.changes import revoke_bindings
from service.trust.bindings.listing import parse_as_of
from service.trust.bindings.repository import BindingState, list_by_repository
from service.trust.bindings.repository_revocation import Repository
from service.trust.bindings.rules import REPOSITORY_ID_DIGITS_MAX, parse_repository_id
from service.trust.bindings.services import BindingServices
from service.trust.refusals import REPOSITORY_CHANGED, REPOSITORY_NOT_BOUND
from service.web.models import Answer, InstantOrDate, Request
from service.web.operator_endpoint import OperatorCall, OperatorResource, OperatorWriteCall

resource = OperatorResource("operator_bindings", "/bindings", BindingServices)


# Its text of an error is that of all endpoints of bindings, so the pattern only documents.
NumericId = Annotated[
    str,
    Meta(extra_json_schema={"pattern": "^0*[1-9][0-9]*$", "maxLength": REPOSITORY_ID_DIGITS_MAX}),
]


class RepositoryQuery(Request):
    """A repository, and which of its bindings."""

    repository_id: Annotated[NumericId, Meta(description="Its id; ids differ by issuer.")]
    issuer: Annotated[str, Meta(description="Only of this issuer.")] | None = None
    state: Annotated[
        Literal["active", "revoked"], Meta(description="Only those in this state.")
    ] = "active"
    asOf: (  # noqa: N815 - as in the list of an organisation's bindings
        Annotated[InstantOrDate, Meta(description="Those that were in `state` then; default now.")]
        | None
    ) = None


class RepositoryRevocation(Request):
    """The bindings to revoke: all active ones of a repository, which the caller was shown."""

    issuer: str
    repository_id: NumericId
    binding_ids: Annotated[list[str], Meta(description="Exactly these must be active.")]
    reason: Annotated[str, Meta(description="Why; stored with each binding.")] | None = None


class OrgBinding(ListedBinding, kw_only=True, rename="camel"):
    """A binding with all its fields, and the slug of its organisation."""

    org: str


class OrgBindings(Answer):
    """Bindings of several organisations, newest first."""

    bindings: list[OrgBinding]


class RevokedBindings(Answer):
    """The ids of the bindings that were revoked; `count` is their number."""

    count: int
    revoked: list[str]


@resource.get("list_repository_bindings", query=RepositoryQuery, returns=OrgBindings)
async def list_(call: OperatorCall[BindingServices], query: RepositoryQuery) -> OrgBindings:
    """List the bindings of a repository in all organisations."""
    repository_id, as_of = parse_repository_id(query.repository_id), parse_as_of(query.asOf)
    async with call.read() as session:
        found = await list_by_repository(session, repository_id, BindingState(query.state), as_of)
        orgs = {each: await get_org_by_id(session, each) for each in {b.tenant_id for b in found}}
    return OrgBindings(
        bindings=[
            OrgBinding.of(binding, org=orgs[binding.tenant_id].slug)
            for binding in found
            if query.issuer in {None, binding.issuer}
        ]
    )


@resource.post(
    "revoke_repository_everywhere",
    "/revoke",
    body=RepositoryRevocation,
    example={
        "issuer": "https://token.actions.githubusercontent.com",
        "repository_id": "123456789",
        "binding_ids": ["obind_1"],
        "reason": "the repository is compromised",
    },
    returns=RevokedBindings,
    refuses=[Invalid, REPOSITORY_NOT_BOUND, REPOSITORY_CHANGED],
)
async def revoke(
    call: OperatorWriteCall[BindingServices], body: RepositoryRevocation
) -> RevokedBindings:
    """Revoke all active bindings of a repository in all organisations, all or none of them."""
    repository = Repository.parse(body.issuer, body.repository_id)
    reason = parse_reason(body.reason)
    active = [
        binding
        for binding in await list_by_repository(call.session, repository.repository_id)
        if binding.issuer == repository.issuer
    ]
    if {binding.id for binding in active} != set(body.binding_ids):
        raise REPOSITORY_CHANGED
    if not active:
        raise REPOSITORY_NOT_BOUND(issuer=repository.issuer, repository_id=repository.repository_id)
    of_org: dict[str, list[Binding]] = defaultdict(list)
    for binding in active:
        of_org[binding.tenant_id].append(binding)
    for tenant_id, bindings in of_org.items():
        org = await get_org_by_id(call.session, tenant_id)
        await revoke_bindings(call.work, org, bindings, reason, call.caller)
    return RevokedBindings(count=len(active), revoked=[binding.id for binding in active])
