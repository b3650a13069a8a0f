"""WebAuthn challenges: random, valid once, for five minutes and in one browser.

The browser keeps a challenge in a signed cookie. Its `id` in base64url is the challenge; an
answered one is stored as spent until it has expired.
"""

import base64
import secrets
from datetime import datetime, timedelta
from typing import Final

from service.access.sign_in.signed_cookie import SignedValue, expiry

CHALLENGE_LIFETIME: Final = timedelta(minutes=5)
_RANDOM_BYTES: Final = 32


class SignInChallenge(SignedValue, frozen=True, kw_only=True):
    """For a user who is not yet identified."""


class RegistrationChallenge(SignedValue, frozen=True, kw_only=True):
    """For the member of one session; `user_handle` will identify them to their passkeys."""

    session_id: str
    user_handle: str


def new_sign_in_challenge(now: datetime) -> SignInChallenge:
    """A fresh challenge for a sign-in."""
    return SignInChallenge(id=_random(), expires_at=expiry(now, CHALLENGE_LIFETIME))


def new_registration_challenge(
    session_id: str, user_handle: str | None, now: datetime
) -> RegistrationChallenge:
    """A fresh challenge for a session; a member without a handle gets a random one."""
    return RegistrationChallenge(
        id=_random(),
        expires_at=expiry(now, CHALLENGE_LIFETIME),
        session_id=session_id,
        user_handle=user_handle or _random(),
    )


def raw(text: str) -> bytes:
    """The bytes of `text`, which is valid base64url."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)
