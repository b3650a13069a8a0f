"""The short code of a sign-in that a person types; the device's own code is a plain secret."""

import hashlib
import hmac
import secrets
from typing import Final

from service.core.secrets import derive_key

ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters that neither form words nor resemble digits (RFC 8628, 6.1)."""

CODE_CHARS: Final = 8
"""34 random bits: enough for ten minutes, given a rate limit."""

_GROUP_CHARS: Final = 4
_TYPED_CHARS_MAX: Final = 32


def new_user_code() -> str:
    """A code such as `WDJB-MJHT`."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
    return f"{letters[:_GROUP_CHARS]}-{letters[_GROUP_CHARS:]}"


def parse_user_code(typed: str) -> str | None:
    """The code that a person typed, in any case and with any separators; None if invalid."""
    if len(typed) > _TYPED_CHARS_MAX or not typed.isascii():
        return None
    letters = "".join(filter(str.isalnum, typed)).upper()
    if len(letters) != CODE_CHARS or not set(letters) <= set(ALPHABET):
        return None
    return f"{letters[:_GROUP_CHARS]}-{letters[_GROUP_CHARS:]}"


def user_code_hash(code: str, secret_key: str) -> str:
    """The keyed hash under which the code is stored: on a plain one, all codes could be tried."""
    key = derive_key(secret_key, "device user code")
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()
