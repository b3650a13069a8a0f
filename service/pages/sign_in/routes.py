"""The pages and steps of signing in, with an identity provider or by a link, and out."""

import secrets
from typing import Final

import structlog
from quart import Blueprint, make_response, redirect, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.org_envelopes import LinkSignInSucceeded, OauthLoginSucceeded, SignInFailed
from analytics.model.rows import VerdictSource
from service.access.callers import RequestOrigin
from service.access.cross_site import (
    FORM_TOKEN_FIELD,
    check_form_token,
    csrf_token,
    refuse_cross_site_form,
)
from service.access.refusals import (
    ACCOUNT_NOT_KNOWN,
    PROVIDER_DENIED,
    SIGN_IN_LINK_REFUSED,
    SIGN_IN_NOT_UNDER_WAY,
    SignInRefused,
)
from service.access.roles import Role
from service.access.sessions import consume_link, find_link_owner, issue_session
from service.access.sign_in.completion import (
    SIGN_IN_ACTOR,
    consume,
    end_session,
    member_context,
    record_failure,
)
from service.access.sign_in.cookies import CHOICE_COOKIE, FLOW_COOKIE
from service.access.sign_in.eligible_memberships import (
    EligibleMembership,
    list_eligible_memberships,
)
from service.access.sign_in.exchange import error_code
from service.access.sign_in.flow import (
    Flow,
    authorization_url,
    begin,
    overview_path,
    own_page,
    page_after,
)
from service.access.sign_in.identity import Identity
from service.access.sign_in.providers import Provider
from service.access.sign_in.services import SignInServices
from service.access.sign_in.signed_cookie import SignedValue, expiry
from service.core.errors import NotFound
from service.orgs.members import add_member
from service.pages.page import Form, OwnCall, page_post
from service.store.organisations import get_org_by_id
from service.store.store import UnitOfWork
from service.web.dependencies import group_of
from service.web.templates import render_template

CODE_CHARS_MAX: Final = 4096

blueprint = Blueprint("sign_in", __name__, url_prefix="/admin/ui/sign-in")
_log = structlog.get_logger(__name__)


class Choice(SignedValue, frozen=True, kw_only=True):
    """An authenticated user's pending choice between several organisations."""

    identity: Identity
    next: str | None


@blueprint.get("")
async def ways() -> ResponseReturnValue:
    """Show the ways to sign in."""
    services = group_of(SignInServices)
    return await render_template(
        "sign_in_ways.html",
        providers=services.providers.values(),
        has_passkeys=services.relying_party is not None,
        next=own_page(request.args.get("next")),
    )


@blueprint.get("/<provider_name>")
async def start(provider_name: str) -> ResponseReturnValue:
    """Redirect to the provider, with a sign-in that only this browser can complete.

    A link and not a form, because browsers apply `form-action` to a form's redirects, too.
    """
    services = group_of(SignInServices)
    provider = _provider(services, provider_name)
    services.attempt()
    endpoints = await services.exchange.endpoints(provider)
    flow = begin(provider, own_page(request.args.get("next")), services.clock())
    url = authorization_url(
        endpoints.authorization, provider, flow, _redirect_uri(services, provider)
    )
    response = redirect(url, 303)
    services.cookies.keep(response, FLOW_COOKIE, services.flows.sign(flow))
    return response


@blueprint.get("/<provider_name>/callback")
async def callback(provider_name: str) -> ResponseReturnValue:
    """Complete a sign-in with a session or a choice of organisations, or refuse it."""
    services = group_of(SignInServices)
    provider = _provider(services, provider_name)
    services.attempt()
    flow = _flow_under_way(services, provider)
    # Committed before the provider is asked, which may take seconds: a second answer to the same
    # sign-in must not get that far.
    async with services.store.write() as work:
        is_first = await consume(work, flow)
    if not is_first:
        raise SIGN_IN_NOT_UNDER_WAY
    identity = await services.exchange.identify(
        provider, flow, _code(provider), _redirect_uri(services, provider)
    )
    async with services.store.write() as work:
        eligible = await list_eligible_memberships(work.session, identity)
        cookie = await _sign_in_if_single(services, work, eligible, identity)
    if not eligible:  # raised here, so that the rows about the attempt are committed
        raise ACCOUNT_NOT_KNOWN
    if cookie is None:
        return _redirect_to_choice(services, identity, flow)
    return _redirect_signed_in(services, cookie, page_after(flow.next, eligible[0].org.slug))


@blueprint.get("/choose")
async def choices() -> ResponseReturnValue:
    """Show the organisations that the user may sign in to, to choose one."""
    services = group_of(SignInServices)
    choice = _choice_under_way(services)
    async with services.store.read() as session:
        eligible = await list_eligible_memberships(session, choice.identity)
    return await render_template(
        "sign_in_choose.html",
        memberships=eligible,
        csrf=csrf_token(services.settings.secret_key, choice.id),
    )


@blueprint.post("/choose")
async def choose() -> ResponseReturnValue:
    """Sign in to the chosen organisation."""
    services = group_of(SignInServices)
    refuse_cross_site_form(request, services.settings.origin)
    services.attempt()
    choice = _choice_under_way(services)
    form = await request.form
    check_form_token(form.get(FORM_TOKEN_FIELD), services.settings.secret_key, choice.id)
    async with services.store.write() as work:
        # Again: a member may have been removed while they were choosing.
        eligible = await list_eligible_memberships(work.session, choice.identity)
        chosen = [membership for membership in eligible if membership.org.slug == form.get("org")]
        if not await consume(work, choice):
            raise SIGN_IN_NOT_UNDER_WAY
        cookie = await _sign_in_if_single(services, work, chosen, choice.identity)
    if cookie is None:
        raise ACCOUNT_NOT_KNOWN
    return _redirect_signed_in(services, cookie, page_after(choice.next, chosen[0].org.slug))


@blueprint.errorhandler(SignInRefused)
async def refused(refusal: SignInRefused) -> ResponseReturnValue:
    """Show why the sign-in failed; unless it can be retried, end what was in progress."""
    services = group_of(SignInServices)
    page = await render_template("sign_in_refused.html", text=refusal.text)
    response = await make_response(page, refusal.status)
    if refusal.retry_after_s is not None:
        response.headers["retry-after"] = str(refusal.retry_after_s)
        return response
    services.cookies.delete(response, FLOW_COOKIE)
    services.cookies.delete(response, CHOICE_COOKIE)
    return response


def _provider(services: SignInServices, name: str) -> Provider:
    """The provider called `name`. Raises NotFound for one that is not set up."""
    provider = services.providers.get(name)
    if provider is None:
        raise NotFound
    return provider


def _flow_under_way(services: SignInServices, provider: Provider) -> Flow:
    """The sign-in with `provider` that this browser began and this request answers."""
    # Bound to the browser by cookie and state (RFC 6749, 10.12), and to one provider, whose
    # answer must not be taken for another one's (RFC 9207).
    flow = services.flows.read(services.cookies.read(request, FLOW_COOKIE), Flow, services.clock())
    if flow is None or flow.provider != provider.name:
        raise SIGN_IN_NOT_UNDER_WAY
    if not flow.has_state(_only("state")):
        raise SIGN_IN_NOT_UNDER_WAY
    return flow


def _choice_under_way(services: SignInServices) -> Choice:
    choice = services.choices.read(
        services.cookies.read(request, CHOICE_COOKIE), Choice, services.clock()
    )
    if choice is None:
        raise SIGN_IN_NOT_UNDER_WAY
    return choice


def _code(provider: Provider) -> str:
    """The provider's code in the current request. Raises PROVIDER_DENIED."""
    code = _only("code")
    if "error" in request.args or not code or len(code) > CODE_CHARS_MAX:
        error = error_code(request.args.get("error", ""))
        _log.info("identity_provider_said_no", provider=provider.name, error=error)
        raise PROVIDER_DENIED
    return code


def _only(name: str) -> str | None:
    """The query's `name`, or None if it is missing or repeated."""
    values = request.args.getlist(name)
    return values[0] if len(values) == 1 else None


async def _sign_in_if_single(
    services: SignInServices, work: UnitOfWork, eligible: list[EligibleMembership], who: Identity
) -> str | None:
    """The cookie of a new session if exactly one is eligible; if none is, record the failure."""
    origin = services.authenticator.origin(request, VerdictSource.DASHBOARD)
    if not eligible:
        await record_failure(work, who, origin)
    if len(eligible) != 1:
        return None
    return await _start_session(work, eligible[0], who, origin)


def _redirect_to_choice(services: SignInServices, identity: Identity, flow: Flow) -> BaseResponse:
    choice = Choice(
        id=secrets.token_urlsafe(32),
        expires_at=expiry(services.clock()),
        identity=identity,
        next=flow.next,
    )
    response = redirect(url_for("sign_in.choices"), 303)
    services.cookies.delete(response, FLOW_COOKIE)
    services.cookies.keep(response, CHOICE_COOKIE, services.choices.sign(choice))
    return response


def _redirect_signed_in(services: SignInServices, cookie: str, page: str) -> BaseResponse:
    response = redirect(page, 303)
    services.cookies.delete(response, FLOW_COOKIE)
    services.cookies.delete(response, CHOICE_COOKIE)
    services.cookies.keep_session(response, cookie)
    return response


def _redirect_uri(services: SignInServices, provider: Provider) -> str:
    """The callback address of this service, as registered at the provider."""
    return f"{services.settings.public_url}/admin/ui/sign-in/{provider.name}/callback"


async def _start_session(
    work: UnitOfWork, eligible: EligibleMembership, identity: Identity, origin: RequestOrigin
) -> str:
    """Start a session of `eligible`'s member, created if new; return its cookie.

    The first sign-in links the account: from then on it identifies the member, not the address.
    """
    member = eligible.member
    if member is None:
        by = origin.audit_context(SIGN_IN_ACTOR, "system")
        email = identity.email or ""
        member = await add_member(work, eligible.org, email, Role.MEMBER, identity.provider, by)
    is_new_member = member.identity_subject is None
    # A linked account stays: otherwise a new owner of the address would take over the member.
    if is_new_member:
        member.identity_namespace = identity.namespace
        member.identity_subject = identity.subject
    _, cookie = await issue_session(work.session, member, work.now, origin)
    work.record(
        eligible.org.id,
        OauthLoginSucceeded(
            member_id=member.id, is_new_member=is_new_member, provider=identity.provider
        ),
        member_context(member, origin),
        subject=member.id,
    )
    return cookie


links = Blueprint("links", __name__)


@links.get("/sign-in")
async def sign_in_page() -> ResponseReturnValue:
    """Show a button: mail scanners and link previews follow links, but submit no forms."""
    return await render_template("sign_in.html", token=request.args.get("token", ""))


@links.post("/sign-in")
async def sign_in() -> ResponseReturnValue:
    """Use up a sign-in link and start a session."""
    services = group_of(SignInServices)
    refuse_cross_site_form(request, services.settings.origin)
    # Before the body is read and the database asked: guessing tokens must cost us little.
    origin = services.attempt()
    token = (await request.form).get("token", "")
    async with services.store.write() as work:
        signed_in = await _use_link(work, token, origin)
    if signed_in is None:  # raised here, so that the row about the attempt is committed
        raise SIGN_IN_LINK_REFUSED
    slug, cookie = signed_in
    response = redirect(overview_path(slug), 303)
    services.cookies.keep_session(response, cookie)
    return response


@page_post(links, "/sign-out", needs=None)
async def sign_out(call: OwnCall, _: Form) -> ResponseReturnValue:
    """End the session of this browser."""
    async with call.services.store.write() as work:
        await end_session(work, call.caller)
    response = redirect("/", 303)
    call.services.sign_in.cookies.delete_session(response)
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
