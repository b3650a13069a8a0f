"""Sign the holder of a passkey in or record why not, each with an audit row."""

from dataclasses import dataclass
from typing import Final

import structlog

from analytics.model.org_envelopes import PasskeyAuthenticationSucceeded, SignInFailed
from service.access.callers import MemberPrincipal, RequestOrigin
from service.access.passkeys.ceremonies import Assertion, NotProved, check_assertion, has_grown
from service.access.passkeys.challenges import SignInChallenge
from service.access.passkeys.repository import find_passkey
from service.access.refusals import PASSKEY_NOT_UNDER_WAY
from service.access.sessions import issue_session, renew_session
from service.access.sign_in.completion import MEMBER_REMOVED, SIGN_IN_ACTOR, consume, member_context
from service.access.sign_in.relying_party import RelyingParty
from service.store.organisations import get_org_by_id
from service.store.store import UnitOfWork
from service.store.tables import Member, Passkey

NOT_PROVED: Final = "the answer does not prove that the passkey's owner gave it"
ANOTHER_MEMBER: Final = "the passkey answered for another member"
PASSKEY_REMOVED: Final = "the passkey was removed"
COUNTER: Final = "the passkey's signature counter did not grow: there may be a copy of it"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Proved:
    """A passkey that answered and is accepted, its member, and its new counter."""

    passkey: Passkey
    member: Member
    sign_count: int


async def sign_in_with_passkey(
    work: UnitOfWork,
    party: RelyingParty,
    challenge: SignInChallenge,
    assertion: Assertion,
    origin: RequestOrigin,
) -> tuple[str, str] | None:
    """The slug of the member's organisation and the cookie of their new session, or None.

    Both are recorded, except for an unknown passkey, which belongs to no organisation.
    Raises PASSKEY_NOT_UNDER_WAY for a challenge that was answered before.
    """
    proved = await _proved(work, party, challenge, assertion, origin)
    if proved is None:
        return None
    org = await get_org_by_id(work.session, proved.member.tenant_id)
    _, cookie = await issue_session(work.session, proved.member, work.now, origin)
    _record_use(work, proved, origin)
    return org.slug, cookie


async def sign_in_again_with_passkey(
    work: UnitOfWork,
    party: RelyingParty,
    challenge: SignInChallenge,
    assertion: Assertion,
    caller: MemberPrincipal,
) -> str | None:
    """Renew the caller's session if their passkey answered; its new cookie, or None.

    Both are recorded. Raises PASSKEY_NOT_UNDER_WAY for a challenge that was answered before.
    """
    proved = await _proved(work, party, challenge, assertion, caller.origin)
    if proved is None:
        return None
    if proved.member.id != caller.member_id:
        _refuse(work, proved.member, ANOTHER_MEMBER, caller.origin)
        return None
    _record_use(work, proved, caller.origin)
    return await renew_session(work.session, caller.session_id, work.now)


async def _proved(
    work: UnitOfWork,
    party: RelyingParty,
    challenge: SignInChallenge,
    assertion: Assertion,
    origin: RequestOrigin,
) -> _Proved | None:
    """The accepted passkey that answered, or None; a refusal of a known one is recorded."""
    # First, so that a wrong answer uses the challenge up as well: there is one try for each.
    if not await consume(work, challenge):
        raise PASSKEY_NOT_UNDER_WAY
    found = await find_passkey(work.session, assertion.unverified_id)
    if found is None:
        _log.warning("passkey_refused", reason="unknown passkey")
        return None
    passkey, member = found
    try:
        sign_count = check_assertion(party, challenge, assertion, passkey.public_key)
    except NotProved as error:
        _refuse(work, member, NOT_PROVED, origin, fault=error.fault)
        return None
    # Only after the signature: these refusals are recorded as attempts by the member.
    reason = _reason_against(passkey, member, assertion, sign_count)
    if reason is not None:
        _refuse(work, member, reason, origin)
        return None
    return _Proved(passkey, member, sign_count)


def _reason_against(
    passkey: Passkey, member: Member, assertion: Assertion, sign_count: int
) -> str | None:
    """Why a passkey with a valid signature is not accepted, or None."""
    if member.removed_at is not None:
        return MEMBER_REMOVED
    if passkey.removed_at is not None:
        return PASSKEY_REMOVED
    if assertion.unverified_user_handle != member.user_handle:
        return ANOTHER_MEMBER
    if not has_grown(passkey.sign_count, sign_count):
        return COUNTER
    return None


def _record_use(work: UnitOfWork, proved: _Proved, origin: RequestOrigin) -> None:
    passkey, member = proved.passkey, proved.member
    before = passkey.use_count
    passkey.use_count = before + 1
    passkey.sign_count = proved.sign_count
    passkey.last_used_at = work.now
    succeeded = PasskeyAuthenticationSucceeded(
        member_id=member.id,
        credential_id=passkey.id,
        counter_before=before,
        counter_after=passkey.use_count,
    )
    work.record(member.tenant_id, succeeded, member_context(member, origin), subject=member.id)


def _refuse(
    work: UnitOfWork, member: Member, reason: str, origin: RequestOrigin, fault: str | None = None
) -> None:
    """Record a failed sign-in, and log it. `fault` may repeat untrusted input."""
    # The row names the member as the actor only if the signature proved that it was them.
    is_proved = fault is None
    audit_context = (
        member_context(member, origin)
        if is_proved
        else origin.audit_context(SIGN_IN_ACTOR, "system")
    )
    failure = SignInFailed(method="passkey", reason=reason)
    work.record(member.tenant_id, failure, audit_context, subject=member.id)
    _log.warning("passkey_refused", reason=reason, fault=fault)
