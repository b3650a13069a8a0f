"""Signs in through a browser: the device's side of the device authorization grant (RFC 8628)."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Final

from service.cli.server_client import ServerClient
from service.cli.server_failures import ServerRefusal
from service.core.errors import Refusal

CLIENT: Final = {"client_id": "countersign-cli"}
GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_S: Final = 5
_INTERVAL_MAX_S: Final = 60.0
_LIFETIME_MAX_S: Final = 3600.0
_NOT_FOUND: Final = 404


class SignInFailed(Refusal):
    """The sign-in ended without a session."""

    status = 401
    text = "the sign-in failed"


_ENDS: Final = {
    "access_denied": "the sign-in was denied in the browser, or you signed out there meanwhile",
    "expired_token": "the sign-in was not approved in time: run `countersign login` again",
    "invalid_grant": "the code is no longer valid: run `countersign login` again",
}


async def sign_in_by_browser(client: ServerClient, ask: Callable[[dict[str, Any]], None]) -> str:
    """The token of a new session, once a member has approved it in a browser.

    `ask` shows the person the code and where to enter it. Raises SignInFailed, ServerRefusal.
    """
    try:
        codes = await client.post_form("/api/v1/device/code", CLIENT)
    except ServerRefusal as refusal:
        if refusal.answered_status == _NOT_FOUND:
            raise SignInFailed(
                f"{client.server} cannot sign in through a browser: use --with-token"
            ) from refusal
        raise
    form = CLIENT | {"grant_type": GRANT_TYPE, "device_code": str(codes["device_code"])}
    interval_s = _seconds(codes.get("interval", 5), _INTERVAL_MAX_S)
    ends_at = time.monotonic() + _seconds(codes["expires_in"], _LIFETIME_MAX_S)
    ask(codes)
    while True:
        await asyncio.sleep(interval_s)
        try:
            answer = await client.post_form("/api/v1/device/token", form)
        except ServerRefusal as refusal:
            interval_s = _next_interval(refusal, interval_s)
            if time.monotonic() >= ends_at:
                raise SignInFailed(_ENDS["expired_token"]) from refusal
            continue
        token: str = answer["access_token"]
        return token


def _seconds(given: object, most: float) -> float:
    """A length of time in an answer, from one second to `most`. Raises ValueError."""
    length = float(str(given))
    if math.isnan(length):
        raise ValueError(given)
    return min(max(length, 1.0), most)


def _next_interval(refusal: ServerRefusal, interval_s: float) -> float:
    """How long to wait after `refusal`. Raises it, or SignInFailed, if it is final."""
    if refusal.code == "authorization_pending":
        return interval_s
    # A server that restarts, or that has too many requests, wants a longer pause (RFC 8628, 3.5).
    if refusal.code == "slow_down" or refusal.is_temporary:
        return interval_s + SLOWER_S
    if refusal.code in _ENDS:
        raise SignInFailed(_ENDS[refusal.code]) from refusal
    raise refusal
