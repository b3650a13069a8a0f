"""Letting an identity in, or turning it away: each with its audit row, in one transaction."""

from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import delete, select

from analytics.model.org_envelopes import OauthLoginSucceeded, SignInFailed
from analytics.model.rows import AuditContext
from service.access.callers import RequestOrigin, member_actor
from service.orgs.changes import add_member
from service.orgs.roles import Role
from service.orgs.sessions import issue_session
from service.secrets import token_hash
from service.sign_in.eligible_memberships import WayIn, has_address, has_identity
from service.sign_in.identity import Identity
from service.sign_in.signed_cookie import Kept
from service.store.store import UnitOfWork
from service.store.tables import Member, SpentSignIn

SIGN_IN_ACTOR: Final = "system:sign-in"
"""Who acts where an account that is nobody's tries to get in."""

MEMBER_REMOVED: Final = "the member was removed"
"""Why somebody is turned away who was let in before, as their rows say it."""

TOLD_MAX: Final = 20
"""How many organisations are told of one attempt."""

_log = structlog.get_logger(__name__)


async def spend(work: UnitOfWork, kept: Kept) -> bool:
    """Take the one step that `kept` is good for; False if it has been taken before."""
    await work.session.execute(delete(SpentSignIn).where(SpentSignIn.expires_at < work.now))
    id_hash = token_hash(kept.id)
    if await work.session.get(SpentSignIn, id_hash) is not None:
        return False
    # A second more: `kept` must not outlive what blocks it.
    expires_at = datetime.fromtimestamp(kept.expires_at, UTC) + timedelta(seconds=1)
    work.session.add(SpentSignIn(id_hash=id_hash, expires_at=expires_at))
    await work.session.flush()
    return True


async def enter(work: UnitOfWork, way: WayIn, identity: Identity, origin: RequestOrigin) -> str:
    """The cookie of a new session of whoever `way` leads in.

    The first time the account is linked: from then on it, and no address, is the member.
    """
    member = way.member or await _join(work, way, identity, origin)
    is_new_member = member.identity_subject is None
    if is_new_member:
        member.identity_namespace = identity.namespace
        member.identity_subject = identity.subject
    _, cookie = await issue_session(work.session, member, work.now, origin)
    work.record(
        way.org.id,
        OauthLoginSucceeded(
            member_id=member.id, is_new_member=is_new_member, provider=identity.provider
        ),
        member_context(member, origin),
        subject=member.id,
    )
    return cookie


async def record_failure(work: UnitOfWork, identity: Identity, origin: RequestOrigin) -> None:
    """Tell the organisations that `identity` seems to belong to why it does not come in.

    What touches no organisation is in the log alone.
    """
    about = (
        await work.session.scalars(
            select(Member)
            .where(
                (has_identity(identity) & Member.removed_at.is_not(None))
                | (
                    has_address(identity)
                    & (Member.identity_provider == identity.provider)
                    & Member.removed_at.is_(None)
                )
            )
            .order_by(Member.created_at.desc(), Member.id)
            .limit(TOLD_MAX)
        )
    ).all()
    for member in about:
        failure = SignInFailed(method="oauth", reason=_reason(member))
        is_theirs = member.removed_at is not None
        audit_context = (
            member_context(member, origin)
            if is_theirs
            else origin.audit_context(SIGN_IN_ACTOR, "system")
        )
        work.record(member.tenant_id, failure, audit_context, subject=member.id)
    _log.warning("sign_in_not_let_in", provider=identity.provider, told=len(about))


async def _join(work: UnitOfWork, way: WayIn, identity: Identity, origin: RequestOrigin) -> Member:
    by = origin.audit_context(SIGN_IN_ACTOR, "system")
    email = identity.email or ""
    return await add_member(work, way.org, email, Role.MEMBER, identity.provider, by)


def member_context(member: Member, origin: RequestOrigin) -> AuditContext:
    """What the rows of a sign-in by `member` say, before and after there is a session."""
    return origin.audit_context(member_actor(member.identity_provider, member.id), "session")


def _reason(member: Member) -> str:
    if member.removed_at is not None:
        return MEMBER_REMOVED
    if member.identity_subject is not None:
        return "another account is linked to the member with this address"
    return "the provider has not verified the address"
