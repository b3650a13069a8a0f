"""A member's own page, and the forms on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue
from sqlalchemy.ext.asyncio import AsyncSession
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.org_envelopes import SessionRevoked
from analytics.model.rows import AuditContext
from service.access.callers import MemberPrincipal
from service.access.passkeys.changes import remove_passkey
from service.access.passkeys.repository import list_passkeys
from service.access.refusals import SignInAgain
from service.access.sessions import list_sessions, revoke_sessions
from service.access.sign_in.flow import own_page
from service.access.sign_in.services import SignInServices
from service.pages.form_auth import own_form
from service.pages.navigation import render_page
from service.store.organisations import get_org_by_id
from service.store.store import UnitOfWork
from service.store.tables import Member, Organisation, Passkey, Session
from service.web.dependencies import receives

blueprint = Blueprint("profile", __name__, url_prefix="/admin/ui/profile")

DONE: Final = {
    "passkey-added": "The passkey was added. Next time you can sign in with it.",
    "passkey-removed": "The passkey was removed and no longer works. Delete it from your device or"
    " password manager, too.",
    "session-ended": "The session was ended.",
    "sessions-ended": "All your other sessions and unused sign-in links were ended.",
}
"""The page's confirmation after each form."""


@blueprint.get("")
@receives(SignInServices)
async def profile_page(services: SignInServices) -> ResponseReturnValue:
    """Show members their details, passkeys and sessions."""
    caller = await services.access.authorize_self()
    async with services.store.read() as session:
        profile = await load_profile_view(services, session, caller)
    done = DONE.get(request.args.get("done", ""))
    return await render_page(
        services.settings, caller, profile.org, "profile.html", profile=profile, done=done
    )


@blueprint.get("/sign-in-again")
@receives(SignInServices)
async def sign_in_again(services: SignInServices) -> ResponseReturnValue:
    """Ask the member to sign in again, and lead back to the page `next`."""
    caller = await services.access.authorize_self()
    async with services.store.read() as session:
        member = await session.get_one(Member, caller.member_id)
        org = await get_org_by_id(session, member.tenant_id)
    return await render_page(
        services.settings,
        caller,
        org,
        "sign_in_again.html",
        sign_in_ways=services.ways_again(),
        next=own_page(request.args.get("next")) or url_for("profile.profile_page"),
    )


@blueprint.errorhandler(SignInAgain)
async def ask_to_sign_in_again(refusal: SignInAgain) -> ResponseReturnValue:
    """Lead to the page that asks for it."""
    return redirect(url_for("profile.sign_in_again"), 303)


@blueprint.post("/passkeys/remove")
@receives(SignInServices)
async def remove(services: SignInServices) -> ResponseReturnValue:
    """Remove one of the member's passkeys."""
    caller = await services.access.authorize_self()
    form = await own_form(services.settings, caller)
    async with services.store.write() as work:
        present, member = await services.access.reauthorize_self(
            work.session, caller, is_sensitive=True
        )
        await remove_passkey(work, member, form.get("passkey", ""), present.audit_context)
    return _back("passkey-removed")


@blueprint.post("/sessions/end")
@receives(SignInServices)
async def end_session(services: SignInServices) -> ResponseReturnValue:
    """End one of the member's sessions."""
    caller = await services.access.authorize_self()
    form = await own_form(services.settings, caller)
    async with services.store.write() as work:
        present, member = await services.access.reauthorize_self(work.session, caller)
        await end_own_session(work, member, form.get("session", ""), present.audit_context)
    return _back("session-ended")


@blueprint.post("/sessions/end-others")
@receives(SignInServices)
async def end_others(services: SignInServices) -> ResponseReturnValue:
    """End all of the member's sessions except this one."""
    caller = await services.access.authorize_self()
    await own_form(services.settings, caller)
    async with services.store.write() as work:
        present, member = await services.access.reauthorize_self(work.session, caller)
        await end_other_sessions(work, member, caller.session_id, present.audit_context)
    return _back("sessions-ended")


def _back(done: str) -> BaseResponse:
    return redirect(url_for("profile.profile_page", done=done), 303)


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


# In this order: the user agents of earlier ones contain the names of later ones, too.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS: Final = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_words(user_agent: str | None) -> str | None:
    """Such as `Firefox on Linux`, or None for an unknown browser.

    Only a reminder, not evidence: a client can send any user agent.
    """
    browser = _first(_BROWSERS, user_agent or "")
    system = _first(_SYSTEMS, user_agent or "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system


def _first(names: tuple[tuple[str, str], ...], user_agent: str) -> str | None:
    return next((name for token, name in names if token in user_agent), None)


async def end_own_session(
    work: UnitOfWork, member: Member, session_id: str, by: AuditContext
) -> None:
    """End this session of the member; do nothing if it has ended or is not theirs."""
    ended = await revoke_sessions(work.session, member.id, work.now, session_id=session_id)
    _record(work, member, ended, by)


async def end_other_sessions(
    work: UnitOfWork, member: Member, own_id: str, by: AuditContext
) -> None:
    """End all of the member's sessions except `own_id`, and their unused sign-in links."""
    ended = await revoke_sessions(work.session, member.id, work.now, except_id=own_id)
    _record(work, member, ended, by)


def _record(work: UnitOfWork, member: Member, ended: int, by: AuditContext) -> None:
    if not ended:
        return
    revoked = SessionRevoked(member_id=member.id, sessions=ended)
    work.record(member.tenant_id, revoked, by, subject=member.id)
