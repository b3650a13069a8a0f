"""The profile page's data: a member's details, passkeys and sessions."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from service.access.callers import MemberPrincipal
from service.access.passkeys.repository import list_passkeys
from service.access.sessions import list_sessions
from service.access.sign_in.services import SignInServices
from service.pages.profile.browsers import browser_words
from service.store.organisations import get_org_by_id
from service.store.tables import Member, Organisation, Passkey, Session


@dataclass(frozen=True, slots=True)
class ShownSession:
    """A live session; `is_this` marks the one that requested the page."""

    entry: Session
    browser: str | None
    is_this: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """The page's data. `has_passkeys` is false if browsers support none at our address."""

    org: Organisation
    member: Member
    passkeys: Sequence[Passkey]
    sessions: list[ShownSession]
    has_passkeys: bool
    passkey_name: str

    @property
    def has_others(self) -> bool:
        """True if the member has other sessions."""
        return any(not session.is_this for session in self.sessions)


async def load_profile_view(
    services: SignInServices, session: AsyncSession, caller: MemberPrincipal
) -> Profile:
    """The profile of the member who calls."""
    member = await session.get_one(Member, caller.member_id)
    lifetimes = services.authenticator.lifetimes
    live = await list_sessions(session, member.id, lifetimes, services.clock())
    return Profile(
        org=await get_org_by_id(session, member.tenant_id),
        member=member,
        passkeys=await list_passkeys(session, member.id),
        sessions=[
            ShownSession(entry, browser_words(entry.user_agent), entry.id == caller.session_id)
            for entry in live
        ],
        has_passkeys=services.relying_party is not None,
        passkey_name=browser_words(caller.origin.user_agent) or "Passkey",
    )
