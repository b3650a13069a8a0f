"""What a browser's answer must repeat: random, good once, for five minutes and in that browser.

A challenge is kept by the browser in a signed cookie. Its `id` in base64url is the challenge; what
has been answered is remembered as spent until nobody would take it any more.
"""

import base64
import secrets
from datetime import datetime, timedelta
from typing import Final

from service.sign_in.signed_cookie import Kept, expiry

CHALLENGE_LIFETIME: Final = timedelta(minutes=5)
_RANDOM_BYTES: Final = 32


class SignInChallenge(Kept, frozen=True, kw_only=True):
    """For somebody who has not said who they are."""


class RegistrationChallenge(Kept, frozen=True, kw_only=True):
    """For the member of one session; `user_handle` is who they will be to their passkeys."""

    session_id: str
    user_handle: str


def new_sign_in_challenge(now: datetime) -> SignInChallenge:
    """A fresh challenge for a sign-in."""
    return SignInChallenge(id=_random(), expires_at=expiry(now, CHALLENGE_LIFETIME))


def new_registration_challenge(
    session_id: str, user_handle: str | None, now: datetime
) -> RegistrationChallenge:
    """A fresh challenge for a session; a member without a handle is given a random one by it."""
    return RegistrationChallenge(
        id=_random(),
        expires_at=expiry(now, CHALLENGE_LIFETIME),
        session_id=session_id,
        user_handle=user_handle or _random(),
    )


def raw(text: str) -> bytes:
    """The bytes that `text`, made here, spells in base64url."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)
