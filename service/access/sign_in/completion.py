"""What each way to sign in and out has in common: values used once, and the audit rows."""

from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import delete, select

from analytics.model.org_envelopes import SignedOut, SignInFailed
from analytics.model.rows import AuditContext
from service.access.callers import MemberPrincipal, RequestOrigin, member_actor
from service.access.sessions import revoke_sessions
from service.access.sign_in.eligible_memberships import has_address, has_identity
from service.access.sign_in.identity import Identity
from service.access.sign_in.signed_cookie import SignedValue
from service.core.secrets import token_hash
from service.store.store import UnitOfWork
from service.store.tables import Member, SpentSignIn

SIGN_IN_ACTOR: Final = "system:sign-in"
"""The actor of failed sign-ins by an account that no member is linked to."""

MEMBER_REMOVED: Final = "the member was removed"
"""Reason in the audit rows of failed sign-ins by a former member."""

FAILURE_ROWS_MAX: Final = 20
"""How many audit rows one failed sign-in writes."""

_log = structlog.get_logger(__name__)


async def consume(work: UnitOfWork, value: SignedValue) -> bool:
    """Use up `value`, which is valid once; False if it has been used before."""
    await work.session.execute(delete(SpentSignIn).where(SpentSignIn.expires_at < work.now))
    id_hash = token_hash(value.id)
    if await work.session.get(SpentSignIn, id_hash) is not None:
        return False
    # A second more: `value` must not outlive the record that blocks its reuse.
    expires_at = datetime.fromtimestamp(value.expires_at, UTC) + timedelta(seconds=1)
    work.session.add(SpentSignIn(id_hash=id_hash, expires_at=expires_at))
    await work.session.flush()
    return True


async def record_failure(work: UnitOfWork, identity: Identity, origin: RequestOrigin) -> None:
    """Record a failed sign-in in the organisations that `identity` seems to belong to.

    An attempt that concerns no organisation is only logged.
    """
    members = (
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
            .limit(FAILURE_ROWS_MAX)
        )
    ).all()
    for member in members:
        failure = SignInFailed(method="oauth", reason=_reason(member))
        is_theirs = member.removed_at is not None
        # Only the account of a former member is proved to be theirs; the rest only share an
        # address.
        audit_context = (
            member_context(member, origin)
            if is_theirs
            else origin.audit_context(SIGN_IN_ACTOR, "system")
        )
        work.record(member.tenant_id, failure, audit_context, subject=member.id)
    _log.warning("sign_in_not_let_in", provider=identity.provider, told=len(members))


async def end_session(work: UnitOfWork, member: MemberPrincipal) -> None:
    """End the session of `member`'s request; of two concurrent requests one is recorded."""
    ended = await revoke_sessions(
        work.session, member.member_id, work.now, session_id=member.session_id
    )
    if ended:
        work.record(
            member.tenant_id,
            SignedOut(member_id=member.member_id, session_id=member.session_id),
            member.audit_context,
            subject=member.member_id,
        )


def member_context(member: Member, origin: RequestOrigin) -> AuditContext:
    """The audit context of a sign-in by `member`, whether it succeeds or not."""
    return origin.audit_context(member_actor(member.identity_provider, member.id), "session")


def _reason(member: Member) -> str:
    if member.removed_at is not None:
        return MEMBER_REMOVED
    if member.identity_subject is not None:
        return "another account is linked to the member with this address"
    return "the provider has not verified the address"
