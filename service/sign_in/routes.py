"""The pages and steps of signing in with an identity provider."""

import secrets
from typing import Final

import structlog
from quart import Blueprint, make_response, redirect, render_template, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.rows import VerdictSource
from service.access.cross_site import refuse_cross_site_form
from service.access.csrf import FORM_TOKEN_FIELD, check_form_token, csrf_token
from service.errors import (
    AccountNotKnown,
    NotFound,
    ProviderDenied,
    SignInNotUnderWay,
    SignInRefused,
)
from service.sign_in.completion import enter, record_failure, spend
from service.sign_in.cookies import CHOICE_COOKIE, FLOW_COOKIE
from service.sign_in.eligible_memberships import WayIn, list_ways_in
from service.sign_in.exchange import error_code
from service.sign_in.flow import Flow, authorization_url, begin, own_page, page_after
from service.sign_in.identity import Identity
from service.sign_in.providers import Provider
from service.sign_in.services import SignInServices
from service.sign_in.signed_cookie import Kept, expiry
from service.store.store import UnitOfWork
from service.web.context import source_ip
from service.web.dependencies import receives

CODE_CHARS_MAX: Final = 4096

blueprint = Blueprint("sign_in", __name__, url_prefix="/admin/ui/sign-in")
_log = structlog.get_logger(__name__)


class Choice(Kept, frozen=True, kw_only=True):
    """Somebody who has proved who they are and may enter several organisations."""

    identity: Identity
    next: str | None


@blueprint.get("")
@receives(SignInServices)
async def ways(services: SignInServices) -> ResponseReturnValue:
    """Show the ways to sign in."""
    return await render_template(
        "sign_in_ways.html",
        providers=services.providers.values(),
        has_passkeys=services.relying_party is not None,
        next=own_page(request.args.get("next")),
    )


@blueprint.get("/<provider_name>")
@receives(SignInServices)
async def start(services: SignInServices, provider_name: str) -> ResponseReturnValue:
    """Send the browser to the provider, with a sign-in that only this browser can end.

    A link and not a form, because browsers hold a form's redirects to `form-action`, too.
    """
    provider = _provider(services, provider_name)
    services.attempts.admit(_address(services))
    endpoints = await services.exchange.endpoints(provider)
    flow = begin(provider, own_page(request.args.get("next")), services.clock())
    there = authorization_url(
        endpoints.authorization, provider, flow, _redirect_uri(services, provider)
    )
    response = redirect(there, 303)
    services.cookies.keep(response, FLOW_COOKIE, services.flows.sign(flow))
    return response


@blueprint.get("/<provider_name>/callback")
@receives(SignInServices)
async def callback(services: SignInServices, provider_name: str) -> ResponseReturnValue:
    """End a sign-in: with a session, with a choice of organisations, or with a refusal."""
    provider = _provider(services, provider_name)
    services.attempts.admit(_address(services))
    flow = _flow_under_way(services, provider)
    async with services.store.write() as work:
        is_first = await spend(work, flow)
    if not is_first:
        raise SignInNotUnderWay
    identity = await services.exchange.identify(
        provider, flow, _code(provider), _redirect_uri(services, provider)
    )
    async with services.store.write() as work:
        found = await list_ways_in(work.session, identity)
        cookie = await _settle(services, work, found, identity)
    if not found:  # raised out here, so that the rows about the attempt are committed
        raise AccountNotKnown
    if cookie is None:
        return _ask_which(services, identity, flow)
    return _member_principal(services, cookie, page_after(flow.next, found[0].org.slug))


@blueprint.get("/choose")
@receives(SignInServices)
async def choices(services: SignInServices) -> ResponseReturnValue:
    """Show the organisations that somebody may enter, to choose one."""
    choice = _choice_under_way(services)
    async with services.store.read() as session:
        found = await list_ways_in(session, choice.identity)
    return await render_template(
        "sign_in_choose.html",
        ways=found,
        csrf=csrf_token(services.settings.secret_key, choice.id),
    )


@blueprint.post("/choose")
@receives(SignInServices)
async def choose(services: SignInServices) -> ResponseReturnValue:
    """Enter the organisation that was chosen."""
    refuse_cross_site_form(request, services.settings.origin)
    services.attempts.admit(_address(services))
    choice = _choice_under_way(services)
    form = await request.form
    check_form_token(form.get(FORM_TOKEN_FIELD), services.settings.secret_key, choice.id)
    async with services.store.write() as work:
        # Anew: in the time it took to choose, a member can have been removed.
        found = await list_ways_in(work.session, choice.identity)
        chosen = [way for way in found if way.org.slug == form.get("org")]
        if not await spend(work, choice):
            raise SignInNotUnderWay
        cookie = await _settle(services, work, chosen, choice.identity)
    if cookie is None:
        raise AccountNotKnown
    return _member_principal(services, cookie, page_after(choice.next, chosen[0].org.slug))


@blueprint.errorhandler(SignInRefused)
@receives(SignInServices)
async def refused(services: SignInServices, refusal: SignInRefused) -> ResponseReturnValue:
    """Say on a page why nobody was signed in; what was under way is over."""
    page = await render_template("sign_in_refused.html", text=refusal.text)
    response = await make_response(page, refusal.status)
    if refusal.retry_after_s is not None:
        response.headers["retry-after"] = str(refusal.retry_after_s)
        return response
    services.cookies.forget(response, FLOW_COOKIE)
    services.cookies.forget(response, CHOICE_COOKIE)
    return response


def _provider(services: SignInServices, name: str) -> Provider:
    """The provider called `name`. Raises NotFound for one that is not set up."""
    provider = services.providers.get(name)
    if provider is None:
        raise NotFound
    return provider


def _flow_under_way(services: SignInServices, provider: Provider) -> Flow:
    """The sign-in with `provider` that this browser began, and whose answer this is."""
    flow = services.flows.read(services.cookies.read(request, FLOW_COOKIE), Flow, services.clock())
    if flow is None or flow.provider != provider.name:
        raise SignInNotUnderWay
    if not flow.has_state(_only("state")):
        raise SignInNotUnderWay
    return flow


def _choice_under_way(services: SignInServices) -> Choice:
    choice = services.choices.read(
        services.cookies.read(request, CHOICE_COOKIE), Choice, services.clock()
    )
    if choice is None:
        raise SignInNotUnderWay
    return choice


def _code(provider: Provider) -> str:
    """What the provider gave the browser for us. Raises ProviderDenied."""
    code = _only("code")
    if "error" in request.args or not code or len(code) > CODE_CHARS_MAX:
        said = error_code(request.args.get("error", ""))
        _log.info("identity_provider_said_no", provider=provider.name, error=said)
        raise ProviderDenied
    return code


def _only(name: str) -> str | None:
    """The query's `name`, or None if it is missing or there twice."""
    values = request.args.getlist(name)
    return values[0] if len(values) == 1 else None


async def _settle(
    services: SignInServices, work: UnitOfWork, found: list[WayIn], identity: Identity
) -> str | None:
    """The cookie of a new session if there is one way in; else None, of none with a record."""
    origin = services.authenticator.origin(request, VerdictSource.DASHBOARD)
    if not found:
        await record_failure(work, identity, origin)
    if len(found) != 1:
        return None
    return await enter(work, found[0], identity, origin)


def _ask_which(services: SignInServices, identity: Identity, flow: Flow) -> BaseResponse:
    choice = Choice(
        id=secrets.token_urlsafe(32),
        expires_at=expiry(services.clock()),
        identity=identity,
        next=flow.next,
    )
    response = redirect(url_for("sign_in.choices"), 303)
    services.cookies.forget(response, FLOW_COOKIE)
    services.cookies.keep(response, CHOICE_COOKIE, services.choices.sign(choice))
    return response


def _member_principal(services: SignInServices, cookie: str, page: str) -> BaseResponse:
    response = redirect(page, 303)
    services.cookies.forget(response, FLOW_COOKIE)
    services.cookies.forget(response, CHOICE_COOKIE)
    services.cookies.keep_session(response, cookie)
    return response


def _redirect_uri(services: SignInServices, provider: Provider) -> str:
    """Where the provider sends the browser back to, as it was registered there."""
    return f"{services.settings.public_url}/admin/ui/sign-in/{provider.name}/callback"


def _address(services: SignInServices) -> str | None:
    return source_ip(request, services.settings.trusted_proxies)
