"""The cookies of a sign-in under way."""

from datetime import timedelta
from typing import Final

from quart import Request, Response
from werkzeug.wrappers import Response as BaseResponse

from service.composition import services
from service.sign_in.signed_cookie import LIFETIME

FLOW_COOKIE: Final = "sign_in"
CHOICE_COOKIE: Final = "sign_in_choice"
PASSKEY_COOKIE: Final = "sign_in_passkey"
NEW_PASSKEY_COOKIE: Final = "new_passkey"
# A browser lets no other host of our domain set a cookie under this prefix.
_HOST_PREFIX: Final = "__Host-"


def kept_by(request: Request, name: str) -> str | None:
    """What the browser keeps under `name`."""
    return request.cookies.get(_full_name(name))


def keep(
    response: Response | BaseResponse, name: str, value: str, lifetime: timedelta = LIFETIME
) -> None:
    """Let the browser keep `value` for as long as a sign-in may take.

    Lax, not Strict: the provider sends the browser back to us, and the cookie must come along.
    """
    _set(response, name, value, int(lifetime.total_seconds()))


def forget(response: Response | BaseResponse, name: str) -> None:
    """Let the browser keep nothing under `name` any more."""
    _set(response, name, "", 0)


def _set(response: Response | BaseResponse, name: str, value: str, max_age: int) -> None:
    response.set_cookie(
        _full_name(name),
        value,
        max_age=max_age,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=services().settings.has_secure_cookies,
    )


def _full_name(name: str) -> str:
    return _HOST_PREFIX + name if services().settings.has_secure_cookies else name
