"""Sign-ins of devices: requested, decided by a member, and redeemed once for a session.

A person types a short code; the device's own code is a plain secret.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import Select, func, select, update

from analytics.model.org_envelopes import DeviceSignInSucceeded, SignInFailed
from service.access.callers import MemberPrincipal, RequestOrigin
from service.access.refusals import (
    AUTHORIZATION_PENDING,
    DEVICE_CODE_EXPIRED,
    DEVICE_DENIED,
    SLOW_DOWN,
    TOO_MANY_SIGN_INS,
    UNKNOWN_DEVICE_CODE,
    DeviceRefusal,
    UserCodeUnknown,
)
from service.access.sessions import SessionLifetimes, find_session, issue_session
from service.access.sign_in.completion import member_context
from service.core.secrets import derive_key, new_token, token_hash
from service.store.store import UnitOfWork
from service.store.tables import DeviceSignIn, Session

ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters that neither form words nor resemble digits (RFC 8628, 6.1)."""

CODE_CHARS: Final = 8
"""34 random bits: enough for ten minutes, given a rate limit."""

_GROUP_CHARS: Final = 4
_TYPED_CHARS_MAX: Final = 32


def new_user_code() -> str:
    """A code such as `WDJB-MJHT`."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
    return f"{letters[:_GROUP_CHARS]}-{letters[_GROUP_CHARS:]}"


def parse_user_code(typed: str) -> str | None:
    """The code that a person typed, in any case and with any separators; None if invalid."""
    if len(typed) > _TYPED_CHARS_MAX or not typed.isascii():
        return None
    letters = "".join(filter(str.isalnum, typed)).upper()
    if len(letters) != CODE_CHARS or not set(letters) <= set(ALPHABET):
        return None
    return f"{letters[:_GROUP_CHARS]}-{letters[_GROUP_CHARS:]}"


def user_code_hash(code: str, secret_key: str) -> str:
    """The keyed hash under which the code is stored: on a plain one, all codes could be tried."""
    key = derive_key(secret_key, "device user code")
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()


LIFETIME: Final = timedelta(minutes=10)
INTERVAL_S: Final = 5
SLOWER_S: Final = 5
"""Added to the interval of a device that polls too soon (RFC 8628, 3.5)."""

LEEWAY_S: Final = 1
"""How much earlier than its interval a poll may arrive: network delays vary."""

PENDING_MAX: Final = 10_000
"""How many sign-ins may wait at once, which bounds the chance of guessing a user code."""

DENIED: Final = "the member denied the sign-in of a command line"
"""Reason in the audit row of a denial."""


@dataclass(frozen=True, slots=True)
class IssuedCodes:
    """Both codes of a new sign-in; only their hashes are stored."""

    device_code: str
    user_code: str


async def request_sign_in(work: UnitOfWork, secret_key: str, origin: RequestOrigin) -> IssuedCodes:
    """Begin a sign-in for the device that sent the request. Raises TOO_MANY_SIGN_INS."""
    pending = await work.session.scalar(
        select(func.count()).select_from(DeviceSignIn).where(DeviceSignIn.expires_at > work.now)
    )
    if (pending or 0) >= PENDING_MAX:
        raise TOO_MANY_SIGN_INS
    device_code, user_code = new_token(), new_user_code()
    while await work.session.scalar(_of_user_code(user_code, secret_key)) is not None:
        user_code = new_user_code()
    work.session.add(
        DeviceSignIn(
            device_code_hash=token_hash(device_code),
            user_code_hash=user_code_hash(user_code, secret_key),
            created_at=work.now,
            expires_at=work.now + LIFETIME,
            interval_s=INTERVAL_S,
            source_ip=origin.source_ip,
            user_agent=origin.user_agent,
        )
    )
    await work.session.flush()
    return IssuedCodes(device_code, user_code)


async def get_undecided(work: UnitOfWork, user_code: str | None, secret_key: str) -> DeviceSignIn:
    """The sign-in that waits for a decision under this code. Raises UserCodeUnknown."""
    entry = None
    if user_code is not None:
        entry = await work.session.scalar(_of_user_code(user_code, secret_key))
    if entry is None or entry.decided_at is not None or entry.expires_at <= work.now:
        raise UserCodeUnknown
    return entry


async def decide(
    work: UnitOfWork,
    user_code: str | None,
    secret_key: str,
    member: MemberPrincipal,
    *,
    is_approved: bool,
) -> None:
    """Approve or deny a sign-in on behalf of `member`. Raises UserCodeUnknown.

    An approval is recorded once it has started a session, a denial at once.
    """
    entry = await get_undecided(work, user_code, secret_key)
    entry.decided_at = work.now
    if is_approved:
        # The device gets a session of its own when it polls, if this one is still live by then.
        entry.session_id = member.session_id
        return
    work.record(
        member.tenant_id,
        SignInFailed(method="device", reason=DENIED),
        member.audit_context,
        subject=member.member_id,
    )


async def poll(
    work: UnitOfWork, device_code: str, lifetimes: SessionLifetimes, origin: RequestOrigin
) -> str | DeviceRefusal:
    """The token of the new session once the sign-in is approved; otherwise why there is none.

    A refusal is returned, not raised, so that the caller commits the time of the poll.
    """
    entry = await work.session.get(DeviceSignIn, token_hash(device_code))
    if entry is None or entry.used_at is not None:
        return UNKNOWN_DEVICE_CODE()
    if entry.expires_at <= work.now:
        return DEVICE_CODE_EXPIRED()
    if entry.decided_at is None:
        return _wait(entry, work)
    return await _redeem(work, entry, lifetimes, origin)


def _wait(entry: DeviceSignIn, work: UnitOfWork) -> DeviceRefusal:
    before, entry.polled_at = entry.polled_at, work.now
    if before is None or work.now >= before + timedelta(seconds=entry.interval_s - LEEWAY_S):
        return AUTHORIZATION_PENDING()
    entry.interval_s += SLOWER_S
    return SLOW_DOWN()


async def _redeem(
    work: UnitOfWork, entry: DeviceSignIn, lifetimes: SessionLifetimes, origin: RequestOrigin
) -> str | DeviceRefusal:
    """Start the session, once, if the one in which it was approved is still live.

    So if a member's sessions are ended, as by their removal, pending approvals end with them.
    """
    approved_in = entry.session_id
    approving = await find_session(work.session, Session.id == approved_in, lifetimes, work.now)
    if approved_in is None or approving is None:
        return DEVICE_DENIED()
    used = await work.session.scalar(
        # Test and mark in one statement: of two concurrent polls, only one gets a session.
        update(DeviceSignIn)
        .where(
            DeviceSignIn.device_code_hash == entry.device_code_hash,
            DeviceSignIn.used_at.is_(None),
        )
        .values(used_at=work.now)
        .returning(DeviceSignIn.device_code_hash)
    )
    if used is None:
        return UNKNOWN_DEVICE_CODE()
    approver, member = approving
    # An approval proves nothing anew: else a stolen session could be recent without an end, each
    # approved by the one before.
    proved_at = approver.authenticated_at or approver.created_at
    session_id, token = await issue_session(work.session, member, work.now, origin, proved_at)
    work.record(
        member.tenant_id,
        DeviceSignInSucceeded(member_id=member.id, session_id=session_id, approved_in=approved_in),
        member_context(member, origin),
        subject=member.id,
    )
    return token


def _of_user_code(user_code: str, secret_key: str) -> Select[DeviceSignIn]:
    return select(DeviceSignIn).where(
        DeviceSignIn.user_code_hash == user_code_hash(user_code, secret_key)
    )
