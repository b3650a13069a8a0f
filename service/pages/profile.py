"""A member's own page, and the forms on it."""

from typing import Final

from quart import Blueprint, redirect, url_for
from quart.typing import ResponseReturnValue

from analytics.model.org_envelopes import SessionRevoked
from analytics.model.rows import AuditContext
from service.access.passkeys.repository import list_passkeys, remove_passkey
from service.access.refusals import SignInAgain
from service.access.sessions import (
    end_machine_token,
    end_machine_tokens,
    list_sessions,
    revoke_sessions,
)
from service.access.sign_in.flow import own_page
from service.packages.install_tokens.machine_tokens import (
    MACHINE_TOKEN_NOT_FOUND,
    get_machine_token,
    list_machine_tokens,
)
from service.pages.page import Form, OwnCall, Page, View, page_post
from service.store.store import UnitOfWork
from service.store.tables import Member
from service.web.models import Request

blueprint = Blueprint("profile", __name__, url_prefix="/admin/ui/profile")


@Page(
    blueprint,
    "",
    "profile.html",
    needs=None,
    done={
        "passkey-added": "The passkey was added. Next time you can sign in with it.",
        "passkey-removed": "The passkey was removed and no longer works. Delete it from your device"
        " or password manager, too.",
        "session-ended": "The session was ended.",
        "sessions-ended": "All your other sessions, machine tokens and unused sign-in links were"
        " ended.",
        "token-revoked": "The machine token was revoked and no longer works.",
    },
)
async def profile_page(call: OwnCall) -> View:
    """The member's details, passkeys, sessions and machines."""
    services, caller = call.services.sign_in, call.caller
    async with call.read() as session:
        member = await session.get_one(Member, caller.member_id)
        lifetimes = services.authenticator.lifetimes
        sessions = await list_sessions(session, member.id, lifetimes, services.clock())
        passkeys = await list_passkeys(session, member.id)
        machines = await list_machine_tokens(session, call.org, member.id, services.clock())
    return {
        "member": member,
        "passkeys": passkeys,
        "machines": machines,
        "sessions": [
            {
                "entry": entry,
                "browser": browser_words(entry.user_agent),
                "is_this": entry.id == caller.session_id,  # which requested the page
            }
            for entry in sessions
        ],
        "has_others": any(entry.id != caller.session_id for entry in sessions),
        # False if browsers support none at our address.
        "has_passkeys": services.relying_party is not None,
        "passkey_name": browser_words(caller.origin.user_agent) or "Passkey",
    }


class SignInAgainQuery(Request):
    """The page to go back to."""

    next: str = ""


@Page(blueprint, "/sign-in-again", "sign_in_again.html", needs=None, query=SignInAgainQuery)
async def sign_in_again(_: OwnCall, query: SignInAgainQuery) -> View:
    """Ask the member to sign in again, and lead back to the page `next`."""
    return {"next": own_page(query.next) or url_for("profile.profile_page")}


@blueprint.errorhandler(SignInAgain)
async def ask_to_sign_in_again(refusal: SignInAgain) -> ResponseReturnValue:
    """Lead to the page that asks for it."""
    return redirect(url_for("profile.sign_in_again"), 303)


@page_post(blueprint, "/passkeys/remove", needs=None)
async def remove(call: OwnCall, form: Form) -> ResponseReturnValue:
    """Remove one of the member's passkeys."""
    async with call.change(is_sensitive=True) as (work, present, member):
        await remove_passkey(work, member, form.get("passkey", ""), present.audit_context)
    return redirect(profile_page.address(call, "passkey-removed"), 303)


@page_post(blueprint, "/sessions/end", needs=None)
async def end_session(call: OwnCall, form: Form) -> ResponseReturnValue:
    """End one of the member's sessions; do nothing if it has ended or is not theirs."""
    session_id = form.get("session", "")
    async with call.change() as (work, present, member):
        ended = await revoke_sessions(work.session, member.id, work.now, session_id=session_id)
        _record(work, member, ended, present.audit_context)
    return redirect(profile_page.address(call, "session-ended"), 303)


@page_post(blueprint, "/sessions/end-others", needs=None)
async def end_others(call: OwnCall, _: Form) -> ResponseReturnValue:
    """End the member's other sessions, and their machine tokens and unused sign-in links."""
    own_id = call.caller.session_id
    async with call.change() as (work, present, member):
        ended = await revoke_sessions(work.session, member.id, work.now, except_id=own_id)
        await end_machine_tokens(work, member.id, present.audit_context)
        _record(work, member, ended, present.audit_context)
    return redirect(profile_page.address(call, "sessions-ended"), 303)


@page_post(blueprint, "/machine-tokens/revoke", needs=None)
async def revoke_token(call: OwnCall, form: Form) -> ResponseReturnValue:
    """Revoke one of the member's machine tokens."""
    async with call.change() as (work, present, member):
        token = await get_machine_token(work, member.tenant_id, form.get("token", ""))
        if token.member_id != member.id:
            raise MACHINE_TOKEN_NOT_FOUND
        end_machine_token(work, token, present.audit_context)
    return redirect(profile_page.address(call, "token-revoked"), 303)


def _record(work: UnitOfWork, member: Member, ended: int, by: AuditContext) -> None:
    if ended:
        revoked = SessionRevoked(member_id=member.id, sessions=ended)
        work.record(member.tenant_id, revoked, by, subject=member.id)


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
