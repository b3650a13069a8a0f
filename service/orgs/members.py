"""Members: invited, given roles, signed out and removed, within the role of the caller."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Final, Self, get_args

from msgspec import Meta
from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import format_ms, optional_ms
from analytics.model.org_envelopes import (
    MemberAdded,
    MemberRemoved,
    MemberRoleChanged,
    SessionIssued,
    SessionRevoked,
)
from analytics.model.rows import AuditContext
from service.access.passkeys.repository import count_passkeys, remove_all_passkeys
from service.access.roles import Capability, Role, covers
from service.access.sessions import (
    SessionLifetimes,
    end_machine_tokens,
    find_last_seen,
    issue_session,
    list_sessions,
    revoke_sessions,
)
from service.access.sessions import issue_link as issue_token
from service.core.errors import Conflict, Invalid, NotFound
from service.core.ids import new_id
from service.core.settings import IdentityProviderName
from service.core.text_rules import check_choice
from service.store.organisations import (
    find_member,
    get_member,
    list_members_from,
    list_team_offices,
)
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation, TeamAdmin
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Request, SecretAnswer, TimestampMs
from service.web.paging import ListCursors, PageQuery, list_page

EMAIL_PATTERN: Final = r"^[^@\s]{1,64}@[^@\s]{1,190}$"
_EMAIL_EXAMPLE: Final = "ada@example.com"
EMAIL_INVALID: Final = f"email must look like {_EMAIL_EXAMPLE}"

_ADMIN: Final = Capability.ORG_ADMIN
_PROVIDERS: Final[dict[str, IdentityProviderName]] = {
    name: name for name in get_args(IdentityProviderName)
}

resource = Resource("members", "/members", Tag.ORGANISATION, BaseServices)


class Invitation(Request):
    """A person to invite. Their account is linked at their first sign-in."""

    email: Annotated[str, Meta(pattern=EMAIL_PATTERN, examples=[_EMAIL_EXAMPLE])]
    idp: Annotated[IdentityProviderName, Meta(description="The provider that they sign in with.")]
    role: Role = Role.MEMBER


class NewRole(Request):
    """The role that a member gets."""

    role: Role


class MemberEntry(Answer):
    """A member. `idp` is the identity provider that they sign in with."""

    id: str
    email: str
    role: str
    idp: str
    created_at: TimestampMs

    @classmethod
    def of(cls, member: Member, **others: object) -> Self:
        """A member, with the `others` of a subclass."""
        return cls.from_row(member, idp=member.identity_provider, **others)


class ListedMember(MemberEntry):
    """A member, and what is known of them."""

    linked: Annotated[bool, Meta(description="They have signed in with an account.")]
    passkeys: int
    last_seen_at: TimestampMs | None
    teams: Annotated[list[str], Meta(description="The names of the teams they administer.")]


class MemberList(Answer):
    """The present members, by address. `next_cursor` is null on the last page."""

    org: str
    members: list[ListedMember]
    next_cursor: str | None


class EndedSessions(Answer):
    """The member's id, and how many of their sessions were ended."""

    member: str
    sessions: int


class RemovedPasskeys(Answer):
    """The member's id, and how many of their passkeys were removed."""

    member: str
    passkeys: int


class SessionEntry(Answer):
    """A live session. `ends_at` is when it ends if it is not used again."""

    id: str
    created_at: TimestampMs
    last_seen_at: TimestampMs
    ends_at: TimestampMs
    source_ip: str | None
    user_agent: str | None


class MemberSessions(Answer):
    """A member's live sessions, most recently used first."""

    member: str
    email: str
    sessions: list[SessionEntry]


class IssuedSignInLink(SecretAnswer):
    """A link that signs its holder in as the member, once. It is in this answer only."""

    member: str
    email: str
    link: str


class IssuedSession(SecretAnswer):
    """A session of a member, for scripts. Its cookie is in this answer only."""

    member: str
    cookie: str


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member with their passkeys, when they were last seen, and the names of their teams."""

    member: Member
    passkeys: int
    last_seen_at: datetime | None
    teams: list[str]

    @property
    def is_linked(self) -> bool:
        """Whether an account is linked: they have signed in before."""
        return self.member.identity_subject is not None


@resource.get("list_members", needs=_ADMIN, query=PageQuery, returns=MemberList)
async def list_(call: Call[BaseServices], query: PageQuery) -> MemberList:
    """List the present members, by address."""
    cursors = ListCursors.of(call.services.settings, "members", call.org.id, query.find)
    async with call.read() as session:
        load = partial(list_members_from, session, call.org)
        members, next_cursor = await list_page(cursors, query, load, lambda row: row.email)
        listed = await member_facts(session, call.org, members)
    return MemberList(
        org=call.org.slug,
        members=[
            ListedMember.of(
                facts.member,
                linked=facts.is_linked,
                passkeys=facts.passkeys,
                last_seen_at=optional_ms(facts.last_seen_at),
                teams=facts.teams,
            )
            for facts in listed
        ],
        next_cursor=next_cursor,
    )


@resource.post(
    "invite_member",
    needs=_ADMIN,
    body=Invitation,
    example={"email": "ada@example.com", "idp": "github", "role": "auditor"},
    returns=MemberEntry,
    status=201,
    is_sensitive=True,
    refuses=[Conflict],
)
async def invite(call: WriteCall[BaseServices], body: Invitation) -> MemberEntry:
    """Invite a member, with a role within the caller's own. No email is sent."""
    call.caller.require_outranks(body.role, call.org)
    role = body.role.value
    return MemberEntry.of(
        await add_member(call.work, call.org, body.email, role, body.idp, call.by)
    )


@resource.post(
    "set_member_role",
    "/<member_id>/role",
    needs=_ADMIN,
    body=NewRole,
    example={"role": "admin"},
    returns=MemberEntry,
    is_sensitive=True,
    refuses=[NotFound],
)
async def give_role(call: WriteCall[BaseServices], body: NewRole, member_id: str) -> MemberEntry:
    """Change a member's role; neither the old nor the new one may exceed the caller's.

    If the new one allows more, they have to sign in again.
    """
    member = await managed_member(call, member_id)
    call.caller.require_outranks(body.role, call.org)
    await set_role(call.work, call.org, member, body.role.value, call.by)
    return MemberEntry.of(member)


@resource.delete(
    "remove_member", "/<member_id>", needs=_ADMIN, returns=MemberEntry, refuses=[Invalid, NotFound]
)
async def remove(call: WriteCall[BaseServices], member_id: str) -> MemberEntry:
    """End a membership, its sessions, sign-in links and team admin roles."""
    member = await managed_member(call, member_id)
    await remove_member(call.work, call.org, member, call.by)
    return MemberEntry.of(member)


@resource.post(
    "end_member_sessions",
    "/<member_id>/sign-out",
    needs=_ADMIN,
    returns=EndedSessions,
    refuses=[NotFound],
)
async def sign_out(call: WriteCall[BaseServices], member_id: str) -> EndedSessions:
    """End all sessions of a member, and the sign-in links they have not used."""
    member = await managed_member(call, member_id)
    ended = await end_sessions(call.work, call.org, member, call.by)
    return EndedSessions(member=member.id, sessions=ended)


@resource.post(
    "remove_member_passkeys",
    "/<member_id>/remove-passkeys",
    needs=_ADMIN,
    returns=RemovedPasskeys,
    is_sensitive=True,
    refuses=[NotFound],
)
async def remove_passkeys(call: WriteCall[BaseServices], member_id: str) -> RemovedPasskeys:
    """Remove all passkeys of a member. Their sessions stay active."""
    member = await managed_member(call, member_id)
    removed = await remove_all_passkeys(call.work, member, call.by)
    return RemovedPasskeys(member=member.id, passkeys=removed)


@resource.post(
    "issue_sign_in_link",
    "/<member_id>/link",
    needs=_ADMIN,
    returns=IssuedSignInLink,
    status=201,
    is_sensitive=True,
    refuses=[NotFound],
)
async def issue_link(call: WriteCall[BaseServices], member_id: str) -> IssuedSignInLink:
    """Issue a link that signs in as the member, once, within ten minutes."""
    member = await managed_member(call, member_id)
    token = await issue_sign_in(call.work, call.org, member, call.by)
    link = f"{call.services.settings.public_url}/sign-in?token={token}"
    return IssuedSignInLink(member=member.id, email=member.email, link=link)


@resource.get(
    "list_member_sessions",
    "/<member_id>/sessions",
    needs=_ADMIN,
    returns=MemberSessions,
    refuses=[NotFound],
)
async def list_member_sessions(call: Call[BaseServices], member_id: str) -> MemberSessions:
    """List a member's live sessions, most recently used first."""
    lifetimes = SessionLifetimes.of(call.services.settings)
    async with call.read() as session:
        member = await get_member(session, call.org, member_id)
        call.caller.require_outranks(Role(member.role), call.org)
        live = await list_sessions(session, member.id, lifetimes, call.services.clock())
    return MemberSessions(
        member=member.id,
        email=member.email,
        sessions=[
            SessionEntry.from_row(entry, ends_at=format_ms(lifetimes.end_of(entry)))
            for entry in live
        ],
    )


async def add_member(
    work: UnitOfWork,
    org: Organisation,
    email: str,
    role: str,
    identity_provider: str,
    by: AuditContext,
) -> Member:
    """Create a member. Raises Invalid, Conflict."""
    if not re.fullmatch(EMAIL_PATTERN, email) or not email.isprintable():
        raise Invalid(EMAIL_INVALID, field="email")
    provider = parse_provider(identity_provider)
    if await find_member(work.session, org, email) is not None:
        raise Conflict(f"{email} is already a member of {org.slug}")
    member = Member(
        id=new_id("mem"),
        tenant_id=org.id,
        email=email,
        role=check_choice("role", role, Role),
        identity_provider=identity_provider,
        created_at=work.now,
    )
    work.session.add(member)
    await work.session.flush()
    work.record(
        org.id,
        MemberAdded(member_id=member.id, email=email, role=role, identity_provider=provider),
        by,
        subject=member.id,
    )
    return member


async def set_role(
    work: UnitOfWork, org: Organisation, member: Member, role: str, by: AuditContext
) -> None:
    """Change the member's role; if the new one grants more, their sessions and links end.

    Raises Invalid, also for demoting the last owner.
    """
    before = member.role
    after = check_choice("role", role, Role)
    if before == after:
        return
    await _require_another_owner(work.session, member)
    member.role = after
    if not covers(Role(before), Role(after), org.role_overrides):
        # A session that another person may be using must not gain the new role.
        await revoke_sessions(work.session, member.id, work.now)
        await end_machine_tokens(work, member.id, by)
    work.record(
        org.id,
        MemberRoleChanged(member_id=member.id, role_before=before, role_after=after),
        by,
        subject=member.id,
    )


async def remove_member(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> None:
    """End a membership, its sessions and team admin roles. Raises Invalid for the last owner."""
    await _require_another_owner(work.session, member)
    member.removed_at = work.now
    await revoke_sessions(work.session, member.id, work.now)
    await end_machine_tokens(work, member.id, by)
    await work.session.execute(delete(TeamAdmin).where(TeamAdmin.member_id == member.id))
    work.record(org.id, MemberRemoved(member_id=member.id, role=member.role), by, subject=member.id)


async def issue_sign_in(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> str:
    """Issue a single-use sign-in token for `member`."""
    token = await issue_token(work.session, member, work.now)
    work.record(org.id, SessionIssued(member_id=member.id, method="link"), by, subject=member.id)
    return token


async def issue_cookie(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> str:
    """Start a session of `member` and return its cookie value."""
    _, token = await issue_session(work.session, member, work.now)
    work.record(org.id, SessionIssued(member_id=member.id, method="cookie"), by, subject=member.id)
    return token


async def end_sessions(
    work: UnitOfWork, org: Organisation, member: Member, by: AuditContext
) -> int:
    """End all sessions of `member`; returns how many there were."""
    ended = await revoke_sessions(work.session, member.id, work.now)
    await end_machine_tokens(work, member.id, by)
    work.record(org.id, SessionRevoked(member_id=member.id, sessions=ended), by, subject=member.id)
    return ended


async def _require_another_owner(session: AsyncSession, member: Member) -> None:
    """Raise Invalid if `member` is the only owner, so that an organisation always has one."""
    if member.role != Role.OWNER:
        return
    others = await session.scalar(
        select(func.count())
        .select_from(Member)
        .where(
            Member.tenant_id == member.tenant_id,
            Member.role == Role.OWNER,
            Member.removed_at.is_(None),
            Member.id != member.id,
        )
    )
    if not others:
        raise Invalid(
            "the last owner cannot be removed or changed: make another member an owner first"
        )


def parse_provider(idp: str) -> IdentityProviderName:
    """The identity provider of this name. Raises Invalid."""
    provider = _PROVIDERS.get(idp)
    if provider is None:
        raise Invalid(f"idp must be one of {', '.join(_PROVIDERS)}", field="idp")
    return provider


async def managed_member(call: WriteCall[BaseServices], name: str) -> Member:
    """The member with this id or address, if the caller may manage them.

    Raises NotFound, Forbidden. Changes get members only here, so that none skips the check.
    """
    member = await get_member(call.session, call.org, name)
    call.caller.require_outranks(Role(member.role), call.org)
    return member


async def member_facts(
    session: AsyncSession, org: Organisation, members: Sequence[Member]
) -> list[MemberFacts]:
    """What is known of these members of the organisation."""
    ids = [member.id for member in members]
    is_among = Member.id.in_(ids)
    seen = await find_last_seen(session, ids)
    passkeys = await count_passkeys(session, org, is_among)
    teams: dict[str, list[str]] = defaultdict(list)
    for team, member in await list_team_offices(session, org, is_among):
        teams[member.id].append(team.name)
    return [
        MemberFacts(
            member=member,
            passkeys=passkeys.get(member.id, 0),
            last_seen_at=seen.get(member.id),
            teams=teams[member.id],
        )
        for member in members
    ]


async def list_owners(session: AsyncSession, org: Organisation, limit: int) -> Sequence[Member]:
    """The present owners, by email address, at most `limit`."""
    query = (
        select(Member)
        .where(
            Member.tenant_id == org.id,
            Member.role == Role.OWNER,
            Member.removed_at.is_(None),
        )
        .order_by(Member.email)
        .limit(limit)
    )
    return (await session.scalars(query)).all()
