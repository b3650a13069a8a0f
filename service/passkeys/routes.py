"""The steps of signing in with a passkey, and of registering one: JSON, sent by our own pages.

Each has two: `begin` says what the browser is to do and has it keep a challenge, `finish` takes
its answer.
"""

from typing import Any

import structlog
from quart import Blueprint, request, url_for
from quart.typing import ResponseReturnValue

from analytics.model.rows import VerdictSource
from service.access.authorization import authorize_self, reauthorize_self
from service.access.callers import MemberPrincipal, RequestOrigin
from service.access.csrf import FORM_TOKEN_FIELD, check_form_token
from service.composition import services
from service.errors import Invalid, NotFound, PasskeyNotMade, PasskeyNotUnderWay, PasskeyRefused
from service.orgs.repository import get_org_by_id
from service.passkeys.ceremonies import (
    NotProved,
    check_registration,
    creation_options,
    read_assertion,
    request_options,
)
from service.passkeys.challenges import (
    CHALLENGE_LIFETIME,
    RegistrationChallenge,
    SignInChallenge,
    new_registration_challenge,
    new_sign_in_challenge,
)
from service.passkeys.changes import add_passkey
from service.passkeys.repository import list_passkeys
from service.passkeys.sign_in import NOT_PROVED, enter_with_passkey
from service.sign_in.cookies import NEW_PASSKEY_COOKIE, PASSKEY_COOKIE, forget, keep, kept_by
from service.sign_in.flow import own_page, page_after
from service.sign_in.link_routes import refuse_cross_site_form, set_session_cookie
from service.sign_in.relying_party import RelyingParty
from service.store.tables import Member
from service.web.request_parsing import json_object
from service.web.responses import json_answer

blueprint = Blueprint("passkeys", __name__, url_prefix="/admin/ui")
_log = structlog.get_logger(__name__)


@blueprint.post("/sign-in/passkey/begin")
async def begin_sign_in() -> ResponseReturnValue:
    """Say what a browser is to prove, whoever sits before it."""
    here = services()
    party = _relying_party()
    _admit_step()
    challenge = new_sign_in_challenge(here.clock())
    answer = json_answer(request_options(party, challenge))
    keep(answer, PASSKEY_COOKIE, here.sign_in.passkeys.sign(challenge), CHALLENGE_LIFETIME)
    return answer


@blueprint.post("/sign-in/passkey/finish")
async def finish_sign_in() -> ResponseReturnValue:
    """Start a session for the owner of the passkey, and say which page is theirs."""
    here = services()
    party = _relying_party()
    origin = _admit_step()
    kept = kept_by(request, PASSKEY_COOKIE)
    challenge = here.sign_in.passkeys.read(kept, SignInChallenge, here.clock())
    if challenge is None:
        raise PasskeyNotUnderWay
    body = await json_object(request)
    try:
        assertion = read_assertion(body.get("credential"))
    except NotProved as error:
        _log.warning("passkey_refused", reason=NOT_PROVED, fault=error.fault)
        raise PasskeyRefused from error
    async with here.store.write() as work:
        entered = await enter_with_passkey(work, party, challenge, assertion, origin)
    if entered is None:  # raised out here, so that the row about the attempt is committed
        raise PasskeyRefused
    answer = json_answer({"next": page_after(own_page(_text(body, "next")), entered.slug)})
    forget(answer, PASSKEY_COOKIE)
    set_session_cookie(answer, entered.cookie, int(here.settings.session_absolute_s))
    return answer


@blueprint.post("/profile/passkeys/begin")
async def begin_registration() -> ResponseReturnValue:
    """Say what passkey the member's browser is to make."""
    here = services()
    party = _relying_party()
    caller, _ = await _own_json()
    async with here.store.read() as session:
        member = await session.get_one(Member, caller.member_id)
        org = await get_org_by_id(session, member.tenant_id)
        own = await list_passkeys(session, member.id)
    challenge = new_registration_challenge(caller.session_id, member.user_handle, here.clock())
    # Whoever is a member of two organisations has two passkeys of one address to choose from.
    name = f"{member.email} ({org.slug})"
    answer = json_answer(creation_options(party, challenge, name, own))
    keep(answer, NEW_PASSKEY_COOKIE, here.sign_in.new_passkeys.sign(challenge), CHALLENGE_LIFETIME)
    return answer


@blueprint.post("/profile/passkeys/finish")
async def finish_registration() -> ResponseReturnValue:
    """Add the passkey that the member's browser has made."""
    here = services()
    party = _relying_party()
    caller, body = await _own_json()
    kept = kept_by(request, NEW_PASSKEY_COOKIE)
    challenge = here.sign_in.new_passkeys.read(kept, RegistrationChallenge, here.clock())
    if challenge is None or challenge.session_id != caller.session_id:
        raise PasskeyNotUnderWay
    try:
        made = check_registration(party, challenge, body.get("credential"))
    except NotProved as error:
        _log.warning("passkey_not_made", fault=error.fault)
        raise PasskeyNotMade from error
    async with here.store.write() as work:
        present, member = await reauthorize_self(work.session, caller)
        await add_passkey(work, member, challenge, made, _name(body), present.audit_context)
    answer = json_answer({"next": url_for("profile.profile_page", done="passkey-added")}, 201)
    forget(answer, NEW_PASSKEY_COOKIE)
    return answer


def _relying_party() -> RelyingParty:
    """What passkeys are for. Raises NotFound where browsers have none for this service."""
    party = services().sign_in.relying_party
    if party is None:
        raise NotFound
    return party


def _admit_step() -> RequestOrigin:
    """How a step came in, sent from one of our own pages. Raises CrossSite, TooManySignIns."""
    here = services()
    refuse_cross_site_form()
    origin = here.authenticator.origin(request, VerdictSource.DASHBOARD)
    here.sign_in.attempts.admit(origin.source_ip)
    return origin


async def _own_json() -> tuple[MemberPrincipal, dict[str, Any]]:
    """The member who sent a step and what it says, once it is sure that a page of theirs sent it.

    Raises Unauthenticated, CrossSite, TooManySignIns, NotAnObject, ForeignForm.
    """
    here = services()
    caller = await authorize_self()
    here.sign_in.attempts.admit(caller.origin.source_ip)
    body = await json_object(request)
    given = _text(body, FORM_TOKEN_FIELD)
    check_form_token(given, here.settings.secret_key, caller.session_id)
    return caller, body


def _name(body: dict[str, Any]) -> str:
    name = _text(body, "name")
    if name is None:
        raise Invalid("name is required (string)")
    return name.strip()


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None
