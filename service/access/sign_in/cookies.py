"""The cookies of sessions and of sign-ins in progress."""

from datetime import timedelta
from typing import Final

from quart import Request, Response
from werkzeug.wrappers import Response as BaseResponse

from service.access.sign_in.signed_cookie import LIFETIME
from service.core.header_names import SESSION_COOKIE
from service.core.settings import Settings

FLOW_COOKIE: Final = "sign_in"
CHOICE_COOKIE: Final = "sign_in_choice"
PASSKEY_COOKIE: Final = "sign_in_passkey"
NEW_PASSKEY_COOKIE: Final = "new_passkey"
# Browsers do not let other hosts of our domain set a cookie with this prefix.
_HOST_PREFIX: Final = "__Host-"


class SignInCookies:
    """Sets and reads cookies, marked Secure where the service is reached by HTTPS."""

    def __init__(self, settings: Settings) -> None:
        self._is_secure = settings.has_secure_cookies
        self._session_s = int(settings.session_absolute_s)

    def read(self, request: Request, name: str) -> str | None:
        """The browser's value of the cookie `name`."""
        return request.cookies.get(self._full_name(name))

    def keep(
        self,
        response: Response | BaseResponse,
        name: str,
        value: str,
        lifetime: timedelta = LIFETIME,
    ) -> None:
        """Set the cookie `name`, by default for as long as a sign-in may take."""
        self._set(response, self._full_name(name), value, int(lifetime.total_seconds()))

    def delete(self, response: Response | BaseResponse, name: str) -> None:
        """Delete the cookie `name`."""
        self._set(response, self._full_name(name), "", 0)

    def keep_session(self, response: Response | BaseResponse, token: str) -> None:
        """Set the session cookie, for as long as a session can last."""
        self._set(response, SESSION_COOKIE, token, self._session_s)

    def delete_session(self, response: Response | BaseResponse) -> None:
        """Delete the session cookie, and pages that the browser could go back to.

        Not its storage: that has the person's choice of time zone, which is no secret.
        """
        self._set(response, SESSION_COOKIE, "", 0)
        response.headers["clear-site-data"] = '"cache"'

    def _set(
        self, response: Response | BaseResponse, name: str, value: str, max_age_s: int
    ) -> None:
        # Lax, not Strict: the cookie must be sent when the provider redirects back.
        response.set_cookie(
            name,
            value,
            max_age=max_age_s,
            path="/",
            httponly=True,
            samesite="Lax",
            secure=self._is_secure,
        )

    def _full_name(self, name: str) -> str:
        return _HOST_PREFIX + name if self._is_secure else name
