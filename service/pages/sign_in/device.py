"""Signing in a command line: its endpoints (RFC 8628, 3.1 to 3.5), and the page to approve it."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from quart import Blueprint, request
from quart.typing import ResponseReturnValue

from analytics.model.rows import VerdictSource
from service.access.device_sign_in import (
    INTERVAL_S,
    LIFETIME,
    decide,
    get_undecided,
    parse_user_code,
    poll,
    request_sign_in,
)
from service.access.refusals import (
    AUTHORIZATION_PENDING,
    DEVICE_CODE_EXPIRED,
    DEVICE_DENIED,
    INVALID_DEVICE_REQUEST,
    SLOW_DOWN,
    TOO_MANY_SIGN_INS,
    UNKNOWN_CLIENT,
    UNKNOWN_DEVICE_CODE,
    UNKNOWN_GRANT_TYPE,
    DeviceRefusal,
    SignInAgain,
    UserCodeUnknown,
)
from service.access.sign_in.services import SignInServices
from service.core.errors import BodyTooLarge, Invalid, Refusal, UnsupportedMediaType
from service.pages.page import Form, FormState, OwnCall, Page, View, page_post
from service.store.tables import Member
from service.web.dependencies import group_of
from service.web.documentation import FORM, Documentation, Tag
from service.web.refusals import UNKNOWN_PARAMETER
from service.web.request_parsing import query_parameters
from service.web.responses import json_answer

NOT_FORM: Final = UnsupportedMediaType.of("content-type must be application/x-www-form-urlencoded")

CLIENT_ID: Final = "countersign-cli"
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
CODE_CHARS_MAX: Final = 200

ClientId = Annotated[Literal["countersign-cli"], Meta(description="The command line.")]


class DeviceCodeRequest(Struct, kw_only=True):
    """Who asks."""

    client_id: ClientId


class DeviceCodes(Struct, kw_only=True):
    """The codes, and where a member enters the short one."""

    device_code: Annotated[str, Meta(description="The device's secret, to poll with.")]
    user_code: Annotated[str, Meta(examples=["WDJB-MJHT"])]
    verification_uri: Annotated[str, Meta(examples=["https://audit.example/device"])]
    expires_in: Annotated[int, Meta(description="Seconds until both codes expire.")]
    interval: Annotated[int, Meta(description="Seconds to wait between two polls.")]


class DeviceTokenRequest(Struct, kw_only=True):
    """A poll for the session."""

    grant_type: Literal["urn:ietf:params:oauth:grant-type:device_code"]
    device_code: Annotated[str, Meta(min_length=1, max_length=CODE_CHARS_MAX)]
    client_id: ClientId


class DeviceToken(Struct, kw_only=True):
    """The session of the member who approved it, to be sent as `Authorization: Bearer`."""

    access_token: str
    token_type: Literal["Bearer"]
    expires_in: Annotated[
        int, Meta(description="Seconds until the session ends at the latest; sooner if not used.")
    ]


CODE_EXAMPLE: Final = {"client_id": CLIENT_ID}
TOKEN_EXAMPLE: Final = {
    "grant_type": GRANT_TYPE,
    "device_code": "pNbV0mMZkd2mXhU5h6c9mA2b2kT9o1o4q7m1w0v8y3E",
    "client_id": CLIENT_ID,
}


blueprint = Blueprint("device_sign_in", __name__, url_prefix="/api/v1/device")

_PARAMETERS = ("client_id", "grant_type", "device_code")
_ANY_REQUEST = (
    INVALID_DEVICE_REQUEST,
    UNKNOWN_CLIENT,
    UNKNOWN_PARAMETER,
    NOT_FORM,
    BodyTooLarge,
    TOO_MANY_SIGN_INS,
)


@blueprint.post("/code")
@Documentation(
    "start_device_sign_in",
    Tag.SESSIONS,
    answers={200: DeviceCodes},
    request={FORM: DeviceCodeRequest},
    request_example=CODE_EXAMPLE,
    refusals=_ANY_REQUEST,
    credentials=(),
)
async def code() -> ResponseReturnValue:
    """Ask to sign a command line in: a member approves it on the page `/device`."""
    services = group_of(SignInServices)
    origin = services.attempt(VerdictSource.ADMIN_API)
    await _parameters()
    async with services.store.write() as work:
        codes = await request_sign_in(work, services.settings.secret_key, origin)
    return json_answer(
        DeviceCodes(
            device_code=codes.device_code,
            user_code=codes.user_code,
            verification_uri=f"{services.settings.public_url}/device",
            expires_in=int(LIFETIME.total_seconds()),
            interval=INTERVAL_S,
        )
    )


@blueprint.post("/token")
@Documentation(
    "poll_device_sign_in",
    Tag.SESSIONS,
    answers={200: DeviceToken},
    request={FORM: DeviceTokenRequest},
    request_example=TOKEN_EXAMPLE,
    refusals=[
        AUTHORIZATION_PENDING,
        SLOW_DOWN,
        DEVICE_CODE_EXPIRED,
        DEVICE_DENIED,
        UNKNOWN_DEVICE_CODE,
        UNKNOWN_GRANT_TYPE,
        *_ANY_REQUEST,
    ],
    credentials=(),
)
async def token() -> ResponseReturnValue:
    """Poll for the session: 400 `authorization_pending` until the member has decided."""
    services = group_of(SignInServices)
    origin = services.authenticator.origin(request, VerdictSource.ADMIN_API)
    services.device_polls.count(origin.source_ip)
    given = await _parameters()
    if given.get("grant_type") != GRANT_TYPE:
        raise UNKNOWN_GRANT_TYPE if given.get("grant_type") else INVALID_DEVICE_REQUEST
    device_code = given.get("device_code", "")
    if not 1 <= len(device_code) <= CODE_CHARS_MAX:
        raise INVALID_DEVICE_REQUEST
    lifetimes = services.authenticator.lifetimes
    async with services.store.write() as work:
        answer = await poll(work, device_code, lifetimes, origin)
    if isinstance(answer, DeviceRefusal):
        raise answer
    return json_answer(
        DeviceToken(
            access_token=answer,
            token_type="Bearer",  # noqa: S106 - the type's name
            expires_in=int(lifetimes.absolute.total_seconds()),
        )
    )


async def _parameters() -> dict[str, str]:
    """The parameters of the request's form, for the one known client.

    Unknown ones are ignored and repeated ones refused (RFC 6749, 3.2).

    Raises DeviceRefusal, NOT_FORM.
    """
    query_parameters(request, ())
    if request.mimetype != FORM:
        raise NOT_FORM
    form = await request.form
    if any(len(form.getlist(name)) > 1 for name in _PARAMETERS):
        raise INVALID_DEVICE_REQUEST
    if not form.get("client_id"):
        raise INVALID_DEVICE_REQUEST
    if form["client_id"] != CLIENT_ID:
        raise UNKNOWN_CLIENT
    return {name: form[name] for name in _PARAMETERS if name in form}


page_blueprint = Blueprint("device_page", __name__, url_prefix="/device")

_DECISIONS = {"approve": True, "deny": False}


@Page(page_blueprint, "", "device.html", needs=None)
async def enter(call: OwnCall) -> View:
    """Ask for the code that the command line shows."""
    async with call.read() as session:
        return {"member": await session.get_one(Member, call.caller.member_id)}


@page_post(page_blueprint, "", needs=None, is_limited=True)
async def review(call: OwnCall, form: Form) -> ResponseReturnValue:
    """Show what asks to be signed in under the code. Nothing is changed."""
    code = parse_user_code(form.get("code", ""))
    try:
        pending = await _pending(call, code)
    except UserCodeUnknown as refusal:
        return await _show(call, refusal, fault=refusal.text)
    return await _show(call, pending=pending)


@page_post(page_blueprint, "/decision", needs=None, is_limited=True)
async def decision(call: OwnCall, form: Form) -> ResponseReturnValue:
    """Approve or deny the sign-in under the code."""
    is_approved = _DECISIONS.get(form.get("decision", ""))
    if is_approved is None:
        raise Invalid("decision must be approve or deny", field="decision")
    code = parse_user_code(form.get("code", ""))
    secret_key = call.services.settings.secret_key
    try:
        async with call.change(is_sensitive=is_approved) as (work, present, _):
            await decide(work, code, secret_key, present, is_approved=is_approved)
    except UserCodeUnknown as refusal:
        return await _show(call, refusal, fault=refusal.text)
    except SignInAgain as refusal:  # the same question, to be answered after that
        pending = await _pending(call, code)
        return await _show(call, refusal, pending=pending, needs_sign_in=True)
    return await _show(call, done="approved" if is_approved else "denied")


async def _pending(call: OwnCall, code: str | None) -> View:
    """The sign-in under `code`, which waits for a decision. Raises UserCodeUnknown."""
    async with call.services.store.write() as work:
        entry = await get_undecided(work, code, call.services.settings.secret_key)
        work.session.expunge(entry)
    return {"code": code, "entry": entry}


async def _show(
    call: OwnCall,
    refusal: Refusal | None = None,
    done: str | None = None,
    **values: Any,  # noqa: ANN401 - of the template
) -> ResponseReturnValue:
    state = FormState(status=200 if refusal is None else refusal.status)
    return await enter.show(call, state, {}, done=done, **values)
