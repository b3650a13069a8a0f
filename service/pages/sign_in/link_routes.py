"""Sign-in by link, and sign-out."""

from quart import Blueprint, redirect, request
from quart.typing import ResponseReturnValue

from analytics.model.org_envelopes import LinkSignInSucceeded, SignInFailed
from analytics.model.rows import VerdictSource
from service.access.callers import RequestOrigin
from service.access.cross_site import refuse_cross_site_form
from service.access.csrf import FORM_TOKEN_FIELD, check_form_token
from service.access.refusals import SIGN_IN_LINK_REFUSED
from service.access.sessions import consume_link, find_link_owner, issue_session
from service.access.sign_in.completion import member_context
from service.access.sign_in.completion import sign_out as end_session
from service.access.sign_in.services import SignInServices
from service.core.paths import overview_path
from service.store.organisations import get_org_by_id
from service.store.store import UnitOfWork
from service.web.dependencies import receives
from service.web.templates import render_template

blueprint = Blueprint("links", __name__)


@blueprint.get("/sign-in")
async def sign_in_page() -> ResponseReturnValue:
    """Show a button: mail scanners and link previews follow links, but submit no forms."""
    return await render_template("sign_in.html", token=request.args.get("token", ""))


@blueprint.post("/sign-in")
@receives(SignInServices)
async def sign_in(services: SignInServices) -> ResponseReturnValue:
    """Use up a sign-in link and start a session."""
    refuse_cross_site_form(request, services.settings.origin)
    origin = services.authenticator.origin(request, VerdictSource.DASHBOARD)
    # Before the body is read and the database asked: guessing tokens must cost us little.
    services.attempts.admit(origin.source_ip)
    token = (await request.form).get("token", "")
    async with services.store.write() as work:
        signed_in = await _use_link(work, token, origin)
    if signed_in is None:  # raised here, so that the row about the attempt is committed
        raise SIGN_IN_LINK_REFUSED
    slug, cookie = signed_in
    response = redirect(overview_path(slug), 303)
    services.cookies.keep_session(response, cookie)
    return response


@blueprint.post("/sign-out")
@receives(SignInServices)
async def sign_out(services: SignInServices) -> ResponseReturnValue:
    """End the session of this browser."""
    member = await services.access.authorize_self()
    given = (await request.form).get(FORM_TOKEN_FIELD)
    check_form_token(given, services.settings.secret_key, member.session_id)
    async with services.store.write() as work:
        await end_session(work, member)
    response = redirect("/", 303)
    services.cookies.forget_session(response)
    return response


async def _use_link(work: UnitOfWork, token: str, origin: RequestOrigin) -> tuple[str, str] | None:
    """The slug of the member's organisation and the cookie of their new session, or None.

    Both outcomes are recorded, except for an unknown token, which belongs to no organisation.
    """
    owner = await find_link_owner(work.session, token)
    if owner is None:
        return None
    audit_context = member_context(owner, origin)
    if not await consume_link(work.session, token, work.now):
        failure = SignInFailed(method="link", reason="the link was used, or has expired")
        work.record(owner.tenant_id, failure, audit_context, subject=owner.id)
        return None
    org = await get_org_by_id(work.session, owner.tenant_id)
    _, cookie = await issue_session(work.session, owner, work.now, origin)
    work.record(org.id, LinkSignInSucceeded(member_id=owner.id), audit_context, subject=owner.id)
    return org.slug, cookie
