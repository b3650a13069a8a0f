"""The pages and steps of signing in with an identity provider."""

import secrets
from typing import Final

import structlog
from quart import Blueprint, make_response, redirect, render_template, request, url_for
from quart.typing import ResponseReturnValue
from werkzeug.wrappers import Response as BaseResponse

from analytics.model.rows import VerdictSource
from service.access.csrf import FORM_TOKEN_FIELD, check_form_token, csrf_token
from service.composition import services
from service.errors import (
    AccountNotKnown,
    NotFound,
    ProviderDenied,
    SignInNotUnderWay,
    SignInRefused,
)
from service.sign_in.completion import enter, record_failure, spend
from service.sign_in.cookies import CHOICE_COOKIE, FLOW_COOKIE, forget, keep, kept_by
from service.sign_in.eligible_memberships import WayIn, list_ways_in
from service.sign_in.exchange import error_code
from service.sign_in.flow import Flow, authorization_url, begin, own_page, page_after
from service.sign_in.identity import Identity
from service.sign_in.link_routes import refuse_cross_site_form, set_session_cookie
from service.sign_in.providers import Provider
from service.sign_in.signed_cookie import Kept, expiry
from service.store.store import UnitOfWork
from service.web.context import source_ip

CODE_CHARS_MAX: Final = 4096

blueprint = Blueprint("sign_in", __name__, url_prefix="/admin/ui/sign-in")
_log = structlog.get_logger(__name__)


class Choice(Kept, frozen=True, kw_only=True):
    """Somebody who has proved who they are and may enter several organisations."""

    identity: Identity
    next: str | None


@blueprint.get("")
async def ways() -> ResponseReturnValue:
    """Show the ways to sign in."""
    return await render_template(
        "sign_in_ways.html",
        providers=services().sign_in.providers.values(),
        has_passkeys=services().sign_in.relying_party is not None,
        next=own_page(request.args.get("next")),
    )


@blueprint.get("/<provider_name>")
async def start(provider_name: str) -> ResponseReturnValue:
    """Send the browser to the provider, with a sign-in that only this browser can end.

    A link and not a form, because browsers hold a form's redirects to `form-action`, too.
    """
    here = services()
    provider = _provider(provider_name)
    here.sign_in.attempts.admit(_address())
    endpoints = await here.sign_in.exchange.endpoints(provider)
    flow = begin(provider, own_page(request.args.get("next")), here.clock())
    there = authorization_url(endpoints.authorization, provider, flow, _redirect_uri(provider))
    response = redirect(there, 303)
    keep(response, FLOW_COOKIE, here.sign_in.flows.sign(flow))
    return response


@blueprint.get("/<provider_name>/callback")
async def callback(provider_name: str) -> ResponseReturnValue:
    """End a sign-in: with a session, with a choice of organisations, or with a refusal."""
    here = services()
    provider = _provider(provider_name)
    here.sign_in.attempts.admit(_address())
    flow = _flow_under_way(provider)
    async with here.store.write() as work:
        is_first = await spend(work, flow)
    if not is_first:
        raise SignInNotUnderWay
    identity = await here.sign_in.exchange.identify(
        provider, flow, _code(provider), _redirect_uri(provider)
    )
    async with here.store.write() as work:
        found = await list_ways_in(work.session, identity)
        cookie = await _settle(work, found, identity)
    if not found:  # raised out here, so that the rows about the attempt are committed
        raise AccountNotKnown
    if cookie is None:
        return _ask_which(identity, flow)
    return _member_principal(cookie, page_after(flow.next, found[0].org.slug))


@blueprint.get("/choose")
async def choices() -> ResponseReturnValue:
    """Show the organisations that somebody may enter, to choose one."""
    here = services()
    choice = _choice_under_way()
    async with here.store.read() as session:
        found = await list_ways_in(session, choice.identity)
    return await render_template(
        "sign_in_choose.html",
        ways=found,
        csrf=csrf_token(here.settings.secret_key, choice.id),
    )


@blueprint.post("/choose")
async def choose() -> ResponseReturnValue:
    """Enter the organisation that was chosen."""
    here = services()
    refuse_cross_site_form()
    here.sign_in.attempts.admit(_address())
    choice = _choice_under_way()
    form = await request.form
    check_form_token(form.get(FORM_TOKEN_FIELD), here.settings.secret_key, choice.id)
    async with here.store.write() as work:
        # Anew: in the time it took to choose, a member can have been removed.
        found = await list_ways_in(work.session, choice.identity)
        chosen = [way for way in found if way.org.slug == form.get("org")]
        if not await spend(work, choice):
            raise SignInNotUnderWay
        cookie = await _settle(work, chosen, choice.identity)
    if cookie is None:
        raise AccountNotKnown
    return _member_principal(cookie, page_after(choice.next, chosen[0].org.slug))


@blueprint.errorhandler(SignInRefused)
async def refused(refusal: SignInRefused) -> ResponseReturnValue:
    """Say on a page why nobody was signed in; what was under way is over."""
    page = await render_template("sign_in_refused.html", text=refusal.text)
    response = await make_response(page, refusal.status)
    if refusal.retry_after_s is not None:
        response.headers["retry-after"] = str(refusal.retry_after_s)
        return response
    forget(response, FLOW_COOKIE)
    forget(response, CHOICE_COOKIE)
    return response


def _provider(name: str) -> Provider:
    """The provider called `name`. Raises NotFound for one that is not set up."""
    provider = services().sign_in.providers.get(name)
    if provider is None:
        raise NotFound
    return provider


def _flow_under_way(provider: Provider) -> Flow:
    """The sign-in with `provider` that this browser began, and whose answer this is."""
    here = services()
    flow = here.sign_in.flows.read(kept_by(request, FLOW_COOKIE), Flow, here.clock())
    if flow is None or flow.provider != provider.name:
        raise SignInNotUnderWay
    if not flow.has_state(_only("state")):
        raise SignInNotUnderWay
    return flow


def _choice_under_way() -> Choice:
    here = services()
    choice = here.sign_in.choices.read(kept_by(request, CHOICE_COOKIE), Choice, here.clock())
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


async def _settle(work: UnitOfWork, found: list[WayIn], identity: Identity) -> str | None:
    """The cookie of a new session if there is one way in; else None, of none with a record."""
    origin = services().authenticator.origin(request, VerdictSource.DASHBOARD)
    if not found:
        await record_failure(work, identity, origin)
    if len(found) != 1:
        return None
    return await enter(work, found[0], identity, origin)


def _ask_which(identity: Identity, flow: Flow) -> BaseResponse:
    here = services()
    choice = Choice(
        id=secrets.token_urlsafe(32),
        expires_at=expiry(here.clock()),
        identity=identity,
        next=flow.next,
    )
    response = redirect(url_for("sign_in.choices"), 303)
    forget(response, FLOW_COOKIE)
    keep(response, CHOICE_COOKIE, here.sign_in.choices.sign(choice))
    return response


def _member_principal(cookie: str, page: str) -> BaseResponse:
    response = redirect(page, 303)
    forget(response, FLOW_COOKIE)
    forget(response, CHOICE_COOKIE)
    set_session_cookie(response, cookie, int(services().settings.session_absolute_s))
    return response


def _redirect_uri(provider: Provider) -> str:
    """Where the provider sends the browser back to, as it was registered there."""
    return f"{services().settings.public_url}/admin/ui/sign-in/{provider.name}/callback"


def _address() -> str | None:
    return source_ip(request, services().settings.trusted_proxies)
