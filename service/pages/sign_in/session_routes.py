"""The endpoint of a credential: whose it is, and the end of its session."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from quart import Blueprint, request
from quart.typing import ResponseReturnValue
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_ms
from analytics.model.rows import VerdictSource
from service.access.callers import ApiKeyPrincipal, Caller, MemberPrincipal
from service.access.refusals import CROSS_SITE
from service.access.roles import Capability, granted
from service.access.sign_in.completion import end_session
from service.access.sign_in.services import SignInServices
from service.store.organisations import get_org_by_id
from service.store.tables import Member, Session
from service.web.dependencies import group_of
from service.web.documentation import CiTokenUse, Documentation, Tag
from service.web.models import TimestampMs
from service.web.refusals import UNKNOWN_PARAMETER
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

blueprint = Blueprint("own_session", __name__, url_prefix="/api/v1/session")


class SignedInMember(Struct, kw_only=True):
    """The member of a session."""

    id: str
    email: str
    role: str


class OwnSession(Struct, kw_only=True):
    """Whose credential the request carries, and what it may do."""

    credential: Literal["admin_token", "api_key", "session"]
    actor: Annotated[str, Meta(description="As in audit rows.", examples=["system:admin-token"])]
    org: Annotated[str, Meta(description="Its organisation; null for all.")] | None
    capabilities: list[str]
    member: SignedInMember | None = None
    session_id: str | None = None
    expires_at: (
        Annotated[TimestampMs, Meta(description="When the session ends if it is not used again.")]
        | None
    ) = None


class EndedSession(Struct, kw_only=True):
    """The session that was ended."""

    revoked: Annotated[str, Meta(examples=["sess_7f3k9m2p4q8r1s5t"])]


@blueprint.get("")
@Documentation(
    "get_own_session",
    Tag.SESSIONS,
    answers={200: OwnSession},
    refusals=[UNKNOWN_PARAMETER],
    ci_token=CiTokenUse.IGNORED,
)
async def show() -> ResponseReturnValue:
    """Tell whose credential the request carries, and what it may do."""
    services = group_of(SignInServices)
    caller = await services.access.authenticate()
    query_parameters(request, ())
    async with services.store.read() as session:
        return json_answer(await _own_session(services, session, caller))


@blueprint.delete("")
@Documentation(
    "end_own_session",
    Tag.SESSIONS,
    answers={200: EndedSession},
    refusals=[UNKNOWN_PARAMETER, CROSS_SITE],
    credentials=("session", "bearer"),
    ci_token=CiTokenUse.IGNORED,
)
async def end() -> ResponseReturnValue:
    """End the session that the request carries: its token and cookie no longer work."""
    services = group_of(SignInServices)
    member = await services.access.authorize_self(VerdictSource.ADMIN_API)
    query_parameters(request, ())
    async with services.store.write() as work:
        await end_session(work, member)
    return json_answer(EndedSession(revoked=member.session_id))


async def _own_session(
    services: SignInServices, session: AsyncSession, caller: Caller
) -> OwnSession:
    actor = caller.audit_context.actor
    if isinstance(caller, ApiKeyPrincipal):
        org = await get_org_by_id(session, caller.tenant_id)
        scopes = sorted(caller.scopes)
        return OwnSession(credential="api_key", actor=actor, org=org.slug, capabilities=scopes)
    if not isinstance(caller, MemberPrincipal):
        return OwnSession(
            credential="admin_token", actor=actor, org=None, capabilities=sorted(Capability)
        )
    member = await session.get_one(Member, caller.member_id)
    org = await get_org_by_id(session, member.tenant_id)
    entry = await session.get_one(Session, caller.session_id)
    return OwnSession(
        credential="session",
        actor=actor,
        org=org.slug,
        capabilities=sorted(granted(caller.role, org.role_overrides)),
        member=SignedInMember(id=member.id, email=member.email, role=member.role),
        session_id=entry.id,
        expires_at=format_ms(services.authenticator.lifetimes.end_of(entry)),
    )
