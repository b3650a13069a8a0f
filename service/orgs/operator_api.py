"""The operator's endpoints for organisations: create and list them, their tiers and legal holds."""

from typing import Annotated, Final

from msgspec import Meta

from analytics.model.retention import Tier
from service.core.errors import Conflict, NotFound, OrgNotFound
from service.core.settings import IdentityProviderName
from service.core.text_rules import REASON_MAX
from service.orgs.domains import set_domain
from service.orgs.members import IssuedSession, issue_cookie
from service.orgs.organisations import (
    HOLD_REASON_MISSING,
    SLUG_PATTERN,
    create_org,
    hold,
    release,
    set_tier,
)
from service.store.organisations import get_member, get_org, list_orgs
from service.web.dependencies import BaseServices
from service.web.models import Answer, Request, TimestampMs
from service.web.operator_endpoint import OperatorCall, OperatorResource, OperatorWriteCall

_ONE: Final = "/<slug>"

OperatorReason = Annotated[
    str,
    Meta(
        description="The case or request; stored and audited.",
        extra_json_schema={"minLength": 1, "maxLength": REASON_MAX},
    ),
]


resource = OperatorResource("organisations", "/orgs", BaseServices)


class NewOrg(Request):
    """An organisation to create."""

    slug: Annotated[
        str,
        Meta(
            description="Letters, digits and inner hyphens.",
            extra_json_schema={"minLength": 1, "maxLength": 64, "pattern": f"^{SLUG_PATTERN}$"},
        ),
    ]
    tier: Annotated[
        Tier, Meta(description="Determines how far back its audit log can be read.")
    ] = Tier.ORG


class NewTier(Request):
    """The tier to move an organisation to."""

    tier: Tier


class NewHold(Request):
    """Why no row of an organisation may be deleted."""

    reason: OperatorReason


class DomainRule(Request):
    """Whether users of a domain need an invitation."""

    domain: Annotated[str, Meta(description="Such as example.com; in ASCII.")]
    idp: Annotated[
        IdentityProviderName, Meta(description="The provider that vouches for the address.")
    ]
    is_allowed: Annotated[bool, Meta(description="False: they need one again; members stay.")] = (
        True
    )


class ReleaseQuery(Request):
    """Why a hold ends."""

    reason: OperatorReason | None = None


class OrgEntry(Answer):
    """An organisation. While it is held, none of its rows are deleted."""

    id: Annotated[str, Meta(description="Prefix `org_`.")]
    slug: str
    tier: Tier
    role_overrides: dict[str, list[str]]
    created_at: TimestampMs
    held_since: TimestampMs | None
    held_reason: str | None


class OrgList(Answer):
    """All organisations."""

    organisations: list[OrgEntry]


class CreatedOrg(Answer):
    """The organisation that was created."""

    id: str
    slug: str
    tier: Tier


class OrgTier(Answer):
    """An organisation's tier."""

    slug: str
    tier: Tier


class OrgHold(Answer):
    """An organisation's legal hold; without one, both fields are null."""

    slug: str
    held_since: TimestampMs | None
    held_reason: str | None


class DomainAllowed(Answer):
    """Whether users of the domain sign in without an invitation."""

    slug: str
    domain: str
    idp: IdentityProviderName
    is_allowed: bool


@resource.get("list_orgs", returns=OrgList)
async def list_(call: OperatorCall[BaseServices]) -> OrgList:
    """List all organisations."""
    async with call.read() as session:
        return OrgList(organisations=list(map(OrgEntry.from_row, await list_orgs(session))))


@resource.post(
    "create_org",
    body=NewOrg,
    example={"slug": "acme", "tier": "org"},
    returns=CreatedOrg,
    status=201,
    refuses=[Conflict],
)
async def create(call: OperatorWriteCall[BaseServices], body: NewOrg) -> CreatedOrg:
    """Create an organisation."""
    org = await create_org(call.work, body.slug, body.tier, call.by)
    return CreatedOrg.from_row(org)


@resource.put(
    "set_org_tier",
    f"{_ONE}/tier",
    body=NewTier,
    example={"tier": "enterprise"},
    returns=OrgTier,
    refuses=[OrgNotFound],
)
async def put_tier(call: OperatorWriteCall[BaseServices], body: NewTier, slug: str) -> OrgTier:
    """Move an organisation to another tier, which its audit log shows at once."""
    org = await get_org(call.session, slug)
    await set_tier(call.work, org, body.tier, call.by)
    return OrgTier.from_row(org)


@resource.put(
    "hold_org",
    f"{_ONE}/hold",
    body=NewHold,
    example={"reason": "case 4711"},
    returns=OrgHold,
    refuses=[HOLD_REASON_MISSING, OrgNotFound],
)
async def put_hold(call: OperatorWriteCall[BaseServices], body: NewHold, slug: str) -> OrgHold:
    """Put an organisation under a legal hold; again replaces the reason, not the hold's start."""
    org = await get_org(call.session, slug)
    await hold(call.work, org, body.reason, call.by)
    return OrgHold.from_row(org)


@resource.delete(
    "release_org", f"{_ONE}/hold", query=ReleaseQuery, returns=OrgHold, refuses=[OrgNotFound]
)
async def delete_hold(
    call: OperatorWriteCall[BaseServices], query: ReleaseQuery, slug: str
) -> OrgHold:
    """Release an organisation from its legal hold, if it is under one."""
    org = await get_org(call.session, slug)
    await release(call.work, org, query.reason, call.by)
    return OrgHold.from_row(org)


@resource.post(
    "start_session",
    f"{_ONE}/members/<member_id>/sessions",
    returns=IssuedSession,
    status=201,
    refuses=[OrgNotFound, NotFound],
)
async def post_session(
    call: OperatorWriteCall[BaseServices], slug: str, member_id: str
) -> IssuedSession:
    """Start a session of a member, for scripts."""
    org = await get_org(call.session, slug)
    member = await get_member(call.session, org, member_id)
    return IssuedSession(
        member=member.id, cookie=await issue_cookie(call.work, org, member, call.by)
    )


@resource.post(
    "set_sign_in_domain",
    f"{_ONE}/domains",
    body=DomainRule,
    example={"domain": "example.com", "idp": "google"},
    returns=DomainAllowed,
    refuses=[OrgNotFound],
)
async def post_domain(
    call: OperatorWriteCall[BaseServices], body: DomainRule, slug: str
) -> DomainAllowed:
    """Let users of a domain sign in without an invitation, or no longer.

    Who signs in with a verified address of it becomes a member, with the role member. Removed
    members cannot.
    """
    org = await get_org(call.session, slug)
    await set_domain(call.work, org, body.domain, body.idp, call.by, is_allowed=body.is_allowed)
    return DomainAllowed(
        slug=org.slug, domain=body.domain.lower(), idp=body.idp, is_allowed=body.is_allowed
    )
