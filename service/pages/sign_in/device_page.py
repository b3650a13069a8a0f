"""The page on which a signed-in member approves or denies the sign-in of a command line."""

from dataclasses import dataclass

from quart import Blueprint
from quart.typing import ResponseReturnValue

from service.access.callers import MemberPrincipal
from service.access.device_sign_in.codes import parse_user_code
from service.access.device_sign_in.grants import decide, get_undecided
from service.access.refusals import SignInAgain, UserCodeUnknown
from service.access.sign_in.services import SignInServices
from service.core.errors import Invalid
from service.pages.form_auth import own_form
from service.pages.navigation import render_page
from service.store.organisations import get_org_by_id
from service.store.tables import DeviceSignIn, Member, Organisation
from service.web.dependencies import receives

blueprint = Blueprint("device_page", __name__, url_prefix="/device")

_DECISIONS = {"approve": True, "deny": False}


@dataclass(frozen=True, slots=True)
class Asked:
    """A sign-in that waits for the member's decision, and the code they typed."""

    code: str
    entry: DeviceSignIn


@blueprint.get("")
@receives(SignInServices)
async def enter(services: SignInServices) -> ResponseReturnValue:
    """Ask for the code that the command line shows."""
    caller = await services.access.authorize_self()
    return await _page(services, caller)


@blueprint.post("")
@receives(SignInServices)
async def review(services: SignInServices) -> ResponseReturnValue:
    """Show what asks to be signed in under the code. Nothing is changed."""
    caller = await services.access.authorize_self()
    services.attempts.admit(caller.origin.source_ip)
    form = await own_form(services.settings, caller)
    code = parse_user_code(form.get("code", ""))
    try:
        async with services.store.write() as work:
            entry = await get_undecided(work, code, services.settings.secret_key)
            work.session.expunge(entry)
    except UserCodeUnknown as refusal:
        return await _page(services, caller, refusal.status, fault=refusal.text)
    return await _page(services, caller, asked=Asked(code or "", entry))


@blueprint.post("/decision")
@receives(SignInServices)
async def decision(services: SignInServices) -> ResponseReturnValue:
    """Approve or deny the sign-in under the code."""
    caller = await services.access.authorize_self()
    services.attempts.admit(caller.origin.source_ip)
    form = await own_form(services.settings, caller)
    is_approved = _DECISIONS.get(form.get("decision", ""))
    if is_approved is None:
        raise Invalid("decision must be approve or deny", field="decision")
    code = parse_user_code(form.get("code", ""))
    try:
        async with services.store.write() as work:
            present, _ = await services.access.reauthorize_self(
                work.session, caller, is_sensitive=is_approved
            )
            await decide(work, code, services.settings.secret_key, present, is_approved=is_approved)
    except UserCodeUnknown as refusal:
        return await _page(services, caller, refusal.status, fault=refusal.text)
    except SignInAgain as refusal:
        return await _asked_again(services, caller, code, refusal)
    return await _page(services, caller, done="approved" if is_approved else "denied")


async def _asked_again(
    services: SignInServices, caller: MemberPrincipal, code: str | None, refusal: SignInAgain
) -> ResponseReturnValue:
    """The same question, which can be answered once the member has signed in again."""
    async with services.store.write() as work:
        entry = await get_undecided(work, code, services.settings.secret_key)
        work.session.expunge(entry)
    asked = Asked(code or "", entry)
    return await _page(services, caller, refusal.status, asked=asked, needs_sign_in=True)


async def _page(
    services: SignInServices, caller: MemberPrincipal, status: int = 200, **shown: object
) -> ResponseReturnValue:
    async with services.store.read() as session:
        member = await session.get_one(Member, caller.member_id)
        org: Organisation = await get_org_by_id(session, member.tenant_id)
    return await render_page(
        services.settings,
        caller,
        org,
        "device.html",
        status,
        member=member,
        sign_in_ways=services.ways_again(),
        **shown,
    )
