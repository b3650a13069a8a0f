"""Sessions and sign-in links: opaque, short-lived random tokens, stored as hashes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from analytics.model.org_envelopes import MachineTokenRevoked
from analytics.model.rows import AuditContext
from service.access.callers import RequestOrigin
from service.core.ids import new_id
from service.core.secrets import new_token, token_hash
from service.core.settings import Settings
from service.store.store import Store, UnitOfWork
from service.store.tables import (
    DeviceSignIn,
    MachineToken,
    Member,
    Session,
    SignInLink,
    TeamAdmin,
)

LINK_LIFETIME: Final = timedelta(minutes=10)
SEEN_STEP: Final = timedelta(minutes=1)
"""How stale `last_seen_at` may become before a request updates it."""

SESSION_PREFIX: Final = "csess_"
"""How every session's token begins, so that a client can tell it from an API key."""

ENDED_KEPT: Final = timedelta(days=30)
"""How long ended sessions and links are kept, so that the use of an old link can be told from a
made-up one and recorded in the right organisation."""

CODES_KEPT: Final = timedelta(hours=1)
"""How long expired device codes are kept, so that a device is told that its code has expired."""

LISTED_MAX: Final = 100
"""The maximum number of sessions listed for a member."""


@dataclass(frozen=True, slots=True)
class SessionLifetimes:
    """A session ends `idle` after its last request, and `absolute` after its first."""

    idle: timedelta
    absolute: timedelta

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The lifetimes that are configured."""
        return cls(
            timedelta(seconds=settings.session_idle_s),
            timedelta(seconds=settings.session_absolute_s),
        )

    def end_of(self, entry: Session) -> datetime:
        """The instant at which `entry` ends if it is not used again."""
        return min(entry.last_seen_at + self.idle, entry.created_at + self.absolute)


async def issue_session(
    session: AsyncSession,
    member: Member,
    now: datetime,
    origin: RequestOrigin | None = None,
    authenticated_at: datetime | None = None,
) -> tuple[str, str]:
    """Start a session for `member`; returns its id and the cookie value, which is not stored.

    `authenticated_at` is when they proved who they are; None: now.

    Ignores any session cookie that the request carried: reusing a cookie planted in the browser
    would allow session fixation.
    """
    token = new_token(SESSION_PREFIX)
    entry = Session(
        id=new_id("sess"),
        member_id=member.id,
        token_hash=token_hash(token),
        created_at=now,
        last_seen_at=now,
        authenticated_at=authenticated_at or now,
        source_ip=None if origin is None else origin.source_ip,
        user_agent=None if origin is None else origin.user_agent,
    )
    session.add(entry)
    await session.flush()
    return entry.id, token


async def renew_session(session: AsyncSession, session_id: str, now: datetime) -> str:
    """Record that the session's member has signed in again; returns its new cookie value.

    The former value ends (OWASP ASVS 5, 7.2.4). The id stays, and with it the forms of open pages.
    """
    token = new_token(SESSION_PREFIX)
    entry = await session.get_one(Session, session_id)
    entry.token_hash = token_hash(token)
    entry.authenticated_at = entry.last_seen_at = now
    return token


async def issue_link(session: AsyncSession, member: Member, now: datetime) -> str:
    """Issue a single-use sign-in token for `member`, valid for LINK_LIFETIME."""
    token = new_token()
    session.add(
        SignInLink(
            token_hash=token_hash(token), member_id=member.id, expires_at=now + LINK_LIFETIME
        )
    )
    await session.flush()
    return token


async def find_link_owner(session: AsyncSession, token: str) -> Member | None:
    """The present member that `token` was issued for, even if it has expired, or None."""
    return await session.scalar(
        select(Member)
        .join(SignInLink, SignInLink.member_id == Member.id)
        .where(SignInLink.token_hash == token_hash(token), Member.removed_at.is_(None))
    )


async def consume_link(session: AsyncSession, token: str, now: datetime) -> bool:
    """Mark `token` as used; True if it was valid. A token works once."""
    used = await session.scalar(
        # Test and mark in one statement: of two concurrent uses, only one can succeed.
        update(SignInLink)
        .where(
            SignInLink.token_hash == token_hash(token),
            SignInLink.used_at.is_(None),
            SignInLink.expires_at > now,
        )
        .values(used_at=now)
        .returning(SignInLink.token_hash)
    )
    return used is not None


async def find_session(
    session: AsyncSession, which: ColumnElement[bool], lifetimes: SessionLifetimes, now: datetime
) -> tuple[Session, Member] | None:
    """The live session that matches `which`, with its member, or None."""
    row = (
        await session.execute(
            select(Session, Member)
            .join(Member, Member.id == Session.member_id)
            # A removed member's session does not count, even if it was not ended.
            .where(which, _is_live(lifetimes, now), Member.removed_at.is_(None))
        )
    ).first()
    return None if row is None else (row[0], row[1])


async def list_sessions(
    session: AsyncSession, member_id: str, lifetimes: SessionLifetimes, now: datetime
) -> Sequence[Session]:
    """The member's live sessions, most recently used first, at most LISTED_MAX."""
    query = (
        select(Session)
        .where(Session.member_id == member_id, _is_live(lifetimes, now))
        .order_by(Session.last_seen_at.desc(), Session.created_at.desc(), Session.id)
        .limit(LISTED_MAX)
    )
    return (await session.scalars(query)).all()


def _is_live(lifetimes: SessionLifetimes, now: datetime) -> ColumnElement[bool]:
    return and_(
        Session.revoked_at.is_(None),
        Session.last_seen_at > now - lifetimes.idle,
        Session.created_at > now - lifetimes.absolute,
    )


async def delete_expired_sessions(
    session: AsyncSession, lifetimes: SessionLifetimes, now: datetime
) -> None:
    """Delete sessions and links that ended ENDED_KEPT ago, and device codes that expired.

    Audit rows are unaffected.

    Each member's last session is kept, because it holds when they were last seen.
    """
    before = now - ENDED_KEPT
    # Before the sessions: a device's sign-in refers to the session in which it was approved.
    await session.execute(delete(DeviceSignIn).where(DeviceSignIn.expires_at <= now - CODES_KEPT))
    had_ended = or_(
        Session.revoked_at <= before,
        Session.last_seen_at <= before - lifetimes.idle,
        Session.created_at <= before - lifetimes.absolute,
    )
    newer = aliased(Session)
    has_newer = exists().where(
        newer.member_id == Session.member_id, newer.last_seen_at > Session.last_seen_at
    )
    await session.execute(delete(Session).where(had_ended, has_newer))
    await session.execute(delete(SignInLink).where(SignInLink.expires_at <= before))


async def touch_session(store: Store, entry: Session, now: datetime) -> None:
    """Update `last_seen_at` of a session in use, at most once per SEEN_STEP."""
    if now - entry.last_seen_at < SEEN_STEP:
        return
    async with store.write() as work:
        await work.session.execute(
            update(Session)
            # Never backwards: another process may have seen the session later.
            .where(Session.id == entry.id, Session.last_seen_at < now)
            .values(last_seen_at=now)
        )


async def revoke_sessions(
    session: AsyncSession,
    member_id: str,
    now: datetime,
    *,
    session_id: str | None = None,
    except_id: str | None = None,
) -> int:
    """End the member's sessions, or only `session_id`, or all but `except_id`; returns how many.

    Unless only `session_id` is ended, unused sign-in links end too, because they could start a new
    session.
    """
    statement = (
        update(Session)
        .where(Session.member_id == member_id, Session.revoked_at.is_(None))
        .values(revoked_at=now)
        .returning(Session.id)
    )
    if session_id is not None:
        statement = statement.where(Session.id == session_id)
    else:
        if except_id is not None:
            statement = statement.where(Session.id != except_id)
        await session.execute(
            update(SignInLink)
            .where(SignInLink.member_id == member_id, SignInLink.used_at.is_(None))
            .values(used_at=now)
        )
    return len((await session.scalars(statement)).all())


async def end_machine_tokens(work: UnitOfWork, member_id: str, by: AuditContext) -> None:
    """Revoke the member's live machine tokens, with which a lost machine could install.

    For when all sessions end; the audit row of each commits with it.
    """
    is_live = MachineToken.revoked_at.is_(None), MachineToken.expires_at > work.now
    tokens = select(MachineToken).where(MachineToken.member_id == member_id, *is_live)
    for token in await work.session.scalars(tokens):
        end_machine_token(work, token, by)


def end_machine_token(work: UnitOfWork, token: MachineToken, by: AuditContext) -> None:
    """Revoke a live token; its audit row commits with it."""
    token.revoked_at = work.now
    revoked = MachineTokenRevoked(machine_token_id=token.id, member_id=token.member_id)
    work.record(token.tenant_id, revoked, by, subject=token.id)


async def find_last_seen(session: AsyncSession, member_ids: Collection[str]) -> dict[str, datetime]:
    """When each member was last seen; members who never signed in are left out."""
    seen = await session.execute(
        select(Session.member_id, func.max(Session.last_seen_at))
        .where(Session.member_id.in_(member_ids))
        .group_by(Session.member_id)
    )
    return {row[0]: row[1] for row in seen}


async def list_teams_of(session: AsyncSession, member_id: str) -> frozenset[str]:
    """The ids of the teams the member administers."""
    return frozenset(
        await session.scalars(select(TeamAdmin.team_id).where(TeamAdmin.member_id == member_id))
    )
