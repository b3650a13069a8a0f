"""Routes to sign in with a passkey and to register one: JSON, sent by our own pages.

Each takes two steps: `begin` sends the browser its options and a challenge in a cookie, `finish`
receives the answer.
"""

from typing import Any

import structlog
from quart import Blueprint, Response, request, url_for
from quart.typing import ResponseReturnValue

from service.access.callers import MemberPrincipal, RequestOrigin
from service.access.cross_site import FORM_TOKEN_FIELD, check_form_token, refuse_cross_site_form
from service.access.passkeys.ceremonies import (
    Assertion,
    NotProved,
    check_registration,
    creation_options,
    read_assertion,
    request_options,
)
from service.access.passkeys.challenges import (
    CHALLENGE_LIFETIME,
    RegistrationChallenge,
    SignInChallenge,
    new_registration_challenge,
    new_sign_in_challenge,
)
from service.access.passkeys.repository import add_passkey, list_passkeys
from service.access.passkeys.sign_in import (
    NOT_PROVED,
    sign_in_again_with_passkey,
    sign_in_with_passkey,
)
from service.access.refusals import PASSKEY_NOT_MADE, PASSKEY_NOT_UNDER_WAY, PASSKEY_REFUSED
from service.access.sign_in.cookies import NEW_PASSKEY_COOKIE, PASSKEY_COOKIE
from service.access.sign_in.flow import own_page, page_after
from service.access.sign_in.relying_party import RelyingParty
from service.access.sign_in.services import SignInServices
from service.core.errors import Invalid, NotFound
from service.store.organisations import get_org_by_id
from service.store.tables import Member
from service.web.dependencies import group_of
from service.web.request_parsing import json_object
from service.web.responses import json_answer

blueprint = Blueprint("passkeys", __name__, url_prefix="/admin/ui")
_log = structlog.get_logger(__name__)


@blueprint.post("/sign-in/passkey/begin")
async def begin_sign_in() -> ResponseReturnValue:
    """Send the options for a sign-in of any member."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    _count_step(services)
    return _options(services, party)


@blueprint.post("/sign-in/passkey/finish")
async def finish_sign_in() -> ResponseReturnValue:
    """Start a session for the passkey's member, and send the page to go to."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    origin = _count_step(services)
    challenge = _challenge(services)
    body = await json_object(request)
    assertion = _assertion(body)
    async with services.store.write() as work:
        signed_in = await sign_in_with_passkey(work, party, challenge, assertion, origin)
    if signed_in is None:  # raised here, so that the row about the attempt is committed
        raise PASSKEY_REFUSED
    slug, cookie = signed_in
    answer = json_answer({"next": page_after(own_page(_text(body, "next")), slug)})
    services.cookies.delete(answer, PASSKEY_COOKIE)
    services.cookies.keep_session(answer, cookie)
    return answer


@blueprint.post("/profile/sign-in-again/begin")
async def begin_again() -> ResponseReturnValue:
    """Send the options for the member to sign in again."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    await _own_json(services)
    return _options(services, party)


@blueprint.post("/profile/sign-in-again/finish")
async def finish_again() -> ResponseReturnValue:
    """Renew the member's session, and send the page to go to; null to stay."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    caller, body = await _own_json(services)
    challenge, assertion = _challenge(services), _assertion(body)
    async with services.store.write() as work:
        present, _ = await services.access.reauthorize_self(work.session, caller)
        cookie = await sign_in_again_with_passkey(work, party, challenge, assertion, present)
    if cookie is None:  # raised here, so that the row about the attempt is committed
        raise PASSKEY_REFUSED
    answer = json_answer({"next": own_page(_text(body, "next"))})
    services.cookies.delete(answer, PASSKEY_COOKIE)
    services.cookies.keep_session(answer, cookie)
    return answer


@blueprint.post("/profile/passkeys/begin")
async def begin_registration() -> ResponseReturnValue:
    """Send the options for a new passkey of the member."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    caller, _ = await _own_json(services)
    services.access.require_recent_sign_in(caller)
    async with services.store.read() as session:
        member = await session.get_one(Member, caller.member_id)
        org = await get_org_by_id(session, member.tenant_id)
        own = await list_passkeys(session, member.id)
    challenge = new_registration_challenge(caller.session_id, member.user_handle, services.clock())
    # A user in two organisations chooses between two passkeys of the same address.
    name = f"{member.email} ({org.slug})"
    answer = json_answer(creation_options(party, challenge, name, own))
    services.cookies.keep(
        answer, NEW_PASSKEY_COOKIE, services.new_passkeys.sign(challenge), CHALLENGE_LIFETIME
    )
    return answer


@blueprint.post("/profile/passkeys/finish")
async def finish_registration() -> ResponseReturnValue:
    """Add the passkey that the member's browser has created."""
    services = group_of(SignInServices)
    party = _relying_party(services)
    caller, body = await _own_json(services)
    cookie = services.cookies.read(request, NEW_PASSKEY_COOKIE)
    challenge = services.new_passkeys.read(cookie, RegistrationChallenge, services.clock())
    # A passkey must not be added to the account of a person who signed in after the challenge.
    if challenge is None or challenge.session_id != caller.session_id:
        raise PASSKEY_NOT_UNDER_WAY
    try:
        made = check_registration(party, challenge, body.get("credential"))
    except NotProved as error:
        _log.warning("passkey_not_made", fault=error.fault)
        raise PASSKEY_NOT_MADE from error
    async with services.store.write() as work:
        present, member = await services.access.reauthorize_self(
            work.session, caller, is_sensitive=True
        )
        await add_passkey(work, member, challenge, made, _name(body), present.audit_context)
    answer = json_answer({"next": url_for("profile.profile_page", done="passkey-added")}, 201)
    services.cookies.delete(answer, NEW_PASSKEY_COOKIE)
    return answer


def _options(services: SignInServices, party: RelyingParty) -> Response:
    """The options for a passkey to answer, with their challenge in a cookie."""
    challenge = new_sign_in_challenge(services.clock())
    answer = json_answer(request_options(party, challenge))
    services.cookies.keep(
        answer, PASSKEY_COOKIE, services.passkeys.sign(challenge), CHALLENGE_LIFETIME
    )
    return answer


def _challenge(services: SignInServices) -> SignInChallenge:
    """The challenge that this browser was sent. Raises PASSKEY_NOT_UNDER_WAY."""
    cookie = services.cookies.read(request, PASSKEY_COOKIE)
    challenge = services.passkeys.read(cookie, SignInChallenge, services.clock())
    if challenge is None:
        raise PASSKEY_NOT_UNDER_WAY
    return challenge


def _assertion(body: dict[str, Any]) -> Assertion:
    """The passkey's answer in `body`, not yet verified. Raises PASSKEY_REFUSED."""
    try:
        return read_assertion(body.get("credential"))
    except NotProved as error:
        _log.warning("passkey_refused", reason=NOT_PROVED, fault=error.fault)
        raise PASSKEY_REFUSED from error


def _relying_party(services: SignInServices) -> RelyingParty:
    """The relying party. Raises NotFound if browsers support no passkeys at our address."""
    party = services.relying_party
    if party is None:
        raise NotFound
    return party


def _count_step(services: SignInServices) -> RequestOrigin:
    """The origin of a step sent by one of our own pages. Raises CROSS_SITE, TOO_MANY_SIGN_INS."""
    refuse_cross_site_form(request, services.settings.origin)
    return services.attempt()


async def _own_json(services: SignInServices) -> tuple[MemberPrincipal, dict[str, Any]]:
    """The member who sent a step and its body, after checking that their own page sent it.

    Raises Unauthenticated, CROSS_SITE, TOO_MANY_SIGN_INS, NOT_AN_OBJECT, FOREIGN_FORM.
    """
    caller = await services.access.authorize_self()
    services.attempts.count(caller.origin.source_ip)
    body = await json_object(request)
    given = _text(body, FORM_TOKEN_FIELD)
    check_form_token(given, services.settings.secret_key, caller.session_id)
    return caller, body


def _name(body: dict[str, Any]) -> str:
    name = _text(body, "name")
    if name is None:
        raise Invalid("name is required (string)", field="name")
    return name.strip()


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None
