"""A member's own page, and the forms on it."""

from typing import Final

from quart import Blueprint, redirect, render_template, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.wrappers import Response as BaseResponse

from service.access.authorization import authorize_self, reauthorize_self
from service.composition import services
from service.dashboard.form_auth import own_form
from service.dashboard.navigation import page_context
from service.passkeys.changes import remove_passkey
from service.profile.changes import end_other_sessions, end_own_session
from service.profile.page import load_profile_view

blueprint = Blueprint("profile", __name__, url_prefix="/admin/ui/profile")

DONE: Final = {
    "passkey-added": "The passkey was added. Next time you can sign in with it.",
    "passkey-removed": "The passkey was removed. It lets nobody in any more; delete it from your"
    " device or password manager, too.",
    "session-ended": "The session was ended.",
    "sessions-ended": "All your other sessions were ended, and sign-in links you had not used.",
}
"""What the page says after each form."""


@blueprint.get("")
async def profile_page() -> ResponseReturnValue:
    """Show members who they are here, their passkeys and their sessions."""
    caller = await authorize_self()
    async with services().store.read() as session:
        profile = await load_profile_view(session, caller)
    return await render_template(
        "profile.html",
        profile=profile,
        done=DONE.get(request.args.get("done", "")),
        **page_context(caller, profile.org),
    )


@blueprint.post("/passkeys/remove")
async def remove() -> ResponseReturnValue:
    """Remove one of the member's passkeys."""
    caller = await authorize_self()
    form = await own_form(caller)
    async with services().store.write() as work:
        present, member = await reauthorize_self(work.session, caller)
        await remove_passkey(work, member, form.get("passkey", ""), present.audit_context)
    return _back("passkey-removed")


@blueprint.post("/sessions/end")
async def end_session() -> ResponseReturnValue:
    """End one of the member's sessions."""
    caller = await authorize_self()
    form = await own_form(caller)
    async with services().store.write() as work:
        present, member = await reauthorize_self(work.session, caller)
        await end_own_session(work, member, form.get("session", ""), present.audit_context)
    return _back("session-ended")


@blueprint.post("/sessions/end-others")
async def end_others() -> ResponseReturnValue:
    """End all of the member's sessions but this one."""
    caller = await authorize_self()
    await own_form(caller)
    async with services().store.write() as work:
        present, member = await reauthorize_self(work.session, caller)
        await end_other_sessions(work, member, caller.session_id, present.audit_context)
    return _back("sessions-ended")


def _back(done: str) -> BaseResponse:
    return redirect(url_for("profile.profile_page", done=done), 303)
