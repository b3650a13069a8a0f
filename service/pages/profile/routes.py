"""A member's own page, and the forms on it."""

from typing import Final

from quart import Blueprint, redirect, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.wrappers import Response as BaseResponse

from service.access.passkeys.changes import remove_passkey
from service.access.sign_in.flow import own_page
from service.access.sign_in.services import SignInServices
from service.core.errors import SignInAgain
from service.pages.form_auth import own_form
from service.pages.navigation import render_page
from service.pages.profile.changes import end_other_sessions, end_own_session
from service.pages.profile.page import load_profile_view
from service.store.organisations import get_org_by_id
from service.store.tables import Member
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
