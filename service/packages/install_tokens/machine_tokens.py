"""Machine tokens, with which members install from their own machines: rules and endpoints.

Such a token may install and nothing else, ends within hours, and works only while its member may
install. A session, which may do more, is thus never in the environment of an install script.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import UNSET, Meta
from sqlalchemy import ColumnElement, and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.org_envelopes import MachineTokenIssued
from analytics.model.rows import AuditContext
from service.access.callers import (
    ApiKeyPrincipal,
    Caller,
    MemberPrincipal,
    is_allowed,
    member_actor,
)
from service.access.refusals import LACKS_CAPABILITY, SignInAgain
from service.access.roles import Capability, Role, granted
from service.access.sessions import end_machine_token
from service.core.errors import Conflict, Forbidden, NotFound
from service.core.ids import new_id
from service.core.secrets import new_token, token_hash
from service.core.text_rules import NAME_MAX, check_name
from service.packages.refusals import MACHINE_TOKEN_OF_ANOTHER_ORG
from service.store.organisations import get_member
from service.store.store import UnitOfWork
from service.store.tables import MachineToken, Member, Organisation
from service.store.transaction import Transaction
from service.web.dependencies import BaseServices
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource, WriteCall
from service.web.models import Answer, Omittable, Request, SecretAnswer, TimestampMs

PREFIX: Final = "csm_"
"""How every machine token begins, so that it differs from install tokens, API keys and sessions."""

LIVE_OF_MEMBER_MAX: Final = 20
LISTED_MAX: Final = 1_000

_INSTALL: Final = Capability.PACKAGES_INSTALL

MEMBER_MISSING: Final = Forbidden.of(
    "machine tokens are for members: name one (member), or sign in as one with `countersign login`"
)
TOO_MANY_MACHINE_TOKENS: Final = Conflict.of(
    f"limit of {LIVE_OF_MEMBER_MAX} live machine tokens of a member reached: revoke one first"
)
MACHINE_TOKEN_NOT_FOUND: Final = NotFound.of("Machine token not found (or no longer live)")

_TOKEN: Final = (
    select(
        MachineToken.id,
        MachineToken.tenant_id,
        MachineToken.expires_at,
        MachineToken.revoked_at,
        Member.id,
        Member.identity_provider,
        Member.role,
        Member.removed_at,
    )
    .join(Member, Member.id == MachineToken.member_id)
    .where(MachineToken.token_hash == bindparam("token_hash"))
)


class StoredMachineToken(NamedTuple):
    """A machine token with its member as they are now. It has ended if either has.

    `actor` is the member as audit rows name them.
    """

    id: str
    tenant_id: str
    expires_at: datetime
    has_ended: bool
    actor: str
    role: Role


@dataclass(frozen=True, slots=True)
class MachinePrincipal(ApiKeyPrincipal):
    """A member's machine, which installs with a machine token; its rows name the member."""

    actor: str = field(kw_only=True)
    role: Role = field(kw_only=True)

    @property
    def audit_context(self) -> AuditContext:
        """The audit context, with the member as the actor."""
        return self.origin.audit_context(self.actor, "machine_token")

    def require_install_rights(self, org: Organisation) -> None:
        """Allow only the member's organisation, while their role may install there."""
        if not self.belongs_to(org):
            raise MACHINE_TOKEN_OF_ANOTHER_ORG
        if _INSTALL not in granted(self.role, org.role_overrides):
            raise LACKS_CAPABILITY(value=_INSTALL)


def find_machine_token(transaction: Transaction, hashed: str) -> StoredMachineToken | None:
    """The machine token with this hash, in any organisation, or None. It may have ended."""
    for line in transaction.rows(_TOKEN, {"token_hash": hashed}):
        token_id, tenant_id, expires_at, revoked_at, member_id, provider, role, removed_at = line
        has_ended = revoked_at is not None or removed_at is not None
        actor = member_actor(provider, member_id)
        return StoredMachineToken(token_id, tenant_id, expires_at, has_ended, actor, Role(role))
    return None


async def list_machine_tokens(
    session: AsyncSession, org: Organisation, member_id: str | None, now: datetime
) -> Sequence[tuple[MachineToken, str]]:
    """The live tokens of a member (None: of all), newest first, each with its member's address.

    At most LISTED_MAX.
    """
    query = (
        select(MachineToken, Member.email)
        .join(Member, Member.id == MachineToken.member_id)
        .where(MachineToken.tenant_id == org.id, _is_live(now), Member.removed_at.is_(None))
        .order_by(MachineToken.created_at.desc(), MachineToken.id)
        .limit(LISTED_MAX)
    )
    if member_id is not None:
        query = query.where(MachineToken.member_id == member_id)
    return [(line[0], line[1]) for line in await session.execute(query)]


def _is_live(now: datetime) -> ColumnElement[bool]:
    return and_(MachineToken.revoked_at.is_(None), MachineToken.expires_at > now)


async def get_machine_token(work: UnitOfWork, tenant_id: str, token_id: str) -> MachineToken:
    """The live token of the organisation with this id. Raises MACHINE_TOKEN_NOT_FOUND."""
    of_org = MachineToken.id == token_id, MachineToken.tenant_id == tenant_id
    token = await work.session.scalar(select(MachineToken).where(*of_org, _is_live(work.now)))
    if token is None:
        raise MACHINE_TOKEN_NOT_FOUND
    return token


resource = Resource("machine_tokens", "/machine-tokens", Tag.INSTALLS, BaseServices)


class NewMachineToken(Request):
    """The machine that a token is for."""

    name: Annotated[
        str, Meta(min_length=1, max_length=NAME_MAX, description="Such as its host name.")
    ]
    member: Omittable[
        Annotated[str, Meta(description="Whose it is: id or address; the caller if missing.")]
    ] = UNSET


class WhoseTokens(Request):
    """Which tokens to list."""

    own: Annotated[bool, Meta(description="Only the caller's own, also with org:admin.")] = False


class MachineTokenEntry(Answer):
    """A live machine token, without its value."""

    id: str
    name: str
    member_id: str
    member: Annotated[str, Meta(description="The member's address.")]
    created_at: TimestampMs
    expires_at: TimestampMs


class MachineTokenList(Answer):
    """Live machine tokens, newest first."""

    org: str
    machine_tokens: list[MachineTokenEntry]


class IssuedMachineToken(SecretAnswer, MachineTokenEntry):
    """A new machine token. `token` is in this answer only."""

    token: Annotated[str, Meta(description="Shown only once, and not stored.")]


class RevokedMachineToken(Answer):
    """The id of the token that was revoked."""

    revoked: str


@resource.get(
    "list_machine_tokens",
    needs=Capability.ORG_ADMIN,
    alternative=Capability.PACKAGES_INSTALL,
    query=WhoseTokens,
    returns=MachineTokenList,
    refuses=[MEMBER_MISSING],
)
async def list_(call: Call[BaseServices], query: WhoseTokens) -> MachineTokenList:
    """List live machine tokens: with org:admin the newest of all members, else the own ones."""
    is_of_all = not query.own and is_allowed(call.caller.require, Capability.ORG_ADMIN, call.org)
    member_id = None if is_of_all else _own_id(call.caller)
    async with call.read() as session:
        now = call.services.clock()
        tokens = await list_machine_tokens(session, call.org, member_id, now)
    entries = [MachineTokenEntry.from_row(token, member=email) for token, email in tokens]
    return MachineTokenList(org=call.org.slug, machine_tokens=entries)


@resource.post(
    "issue_machine_token",
    needs=None,
    body=NewMachineToken,
    example={"name": "mara-laptop", "member": "mara@acme.example"},
    returns=IssuedMachineToken,
    status=201,
    refuses=[MEMBER_MISSING, SignInAgain, NotFound, TOO_MANY_MACHINE_TOKENS],
)
async def issue(call: WriteCall[BaseServices], asked: NewMachineToken) -> IssuedMachineToken:
    """Issue a token to install with from one machine of a member; its value is in this answer only.

    The caller needs packages:install for an own token; for another member's org:admin, and a
    recent sign-in.
    """
    work, org = call.work, call.org
    if asked.member is UNSET:
        call.caller.require(_INSTALL, org)
        member = await get_member(call.session, org, _own_id(call.caller))
    else:
        call.caller.require(Capability.ORG_ADMIN, org)
        # Rows of its installs name the member: a stolen session must not be able to do that.
        call.services.access.require_recent_sign_in(call.caller)
        member = await get_member(call.session, org, asked.member)
        call.caller.require_outranks(Role(member.role), org)
    check_name(asked.name)
    await _check_room(call.session, member.id, work.now)
    value = new_token(PREFIX)
    token = MachineToken(
        id=new_id("mtok"),
        tenant_id=org.id,
        member_id=member.id,
        name=asked.name,
        token_hash=token_hash(value),
        created_at=work.now,
        expires_at=work.now + timedelta(seconds=call.services.settings.machine_token_s),
    )
    call.session.add(token)
    await call.session.flush()
    answer = IssuedMachineToken.from_row(token, member=member.email, token=value)
    issued = MachineTokenIssued(
        machine_token_id=token.id,
        member_id=member.id,
        name=token.name,
        expires_at=answer.expires_at,
    )
    work.record(org.id, issued, call.by, subject=token.id)
    return answer


@resource.delete(
    "revoke_machine_token",
    "/<machine_token_id>",
    needs=None,
    returns=RevokedMachineToken,
    refuses=[MACHINE_TOKEN_NOT_FOUND],
)
async def revoke(call: WriteCall[BaseServices], machine_token_id: str) -> RevokedMachineToken:
    """Revoke a machine token with immediate effect; another member's needs org:admin."""
    token = await get_machine_token(call.work, call.org.id, machine_token_id)
    if not isinstance(call.caller, MemberPrincipal) or call.caller.member_id != token.member_id:
        call.caller.require(Capability.ORG_ADMIN, call.org)
    end_machine_token(call.work, token, call.by)
    return RevokedMachineToken(revoked=token.id)


def _own_id(caller: Caller) -> str:
    """The member who calls. Raises MEMBER_MISSING."""
    if not isinstance(caller, MemberPrincipal):
        raise MEMBER_MISSING
    return caller.member_id


async def _check_room(session: AsyncSession, member_id: str, now: datetime) -> None:
    """Raise TOO_MANY_MACHINE_TOKENS if the member has the maximum of live tokens."""
    # Under the write lock of the insertion: concurrent requests cannot exceed the limit together.
    of_member = select(func.count()).where(MachineToken.member_id == member_id, _is_live(now))
    if (await session.scalar(of_member) or 0) >= LIVE_OF_MEMBER_MAX:
        raise TOO_MANY_MACHINE_TOKENS
