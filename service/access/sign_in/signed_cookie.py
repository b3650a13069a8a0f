"""Values that a browser keeps between two requests: signed, short-lived, but not secret."""

import hashlib
from datetime import datetime, timedelta
from typing import Final, TypeVar

import itsdangerous
import msgspec
from itsdangerous.encoding import base64_decode, base64_encode

from service.core.secrets import derive_key

LIFETIME: Final = timedelta(minutes=10)
VALUE_CHARS_MAX: Final = 3500
"""Browsers keep cookies of up to 4,096 bytes, name and attributes included."""


class SignedValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value valid until `expires_at` (seconds since 1970) and, by its `id`, only once."""

    id: str
    expires_at: int


_Value = TypeVar("_Value", bound=SignedValue)


def expiry(now: datetime, lifetime: timedelta = LIFETIME) -> int:
    """The `expires_at` of a value created `now`."""
    return int((now + lifetime).timestamp())


class Signer:
    """Signs values for one purpose: values signed for another purpose are not accepted."""

    def __init__(self, secret_key: str, purpose: str) -> None:
        self._signer = itsdangerous.Signer(
            derive_key(secret_key, purpose),
            salt=purpose,
            key_derivation="hmac",
            digest_method=hashlib.sha256,
        )

    def sign(self, value: SignedValue) -> str:
        """`value` as the text of a cookie."""
        return self._signer.sign(base64_encode(msgspec.json.encode(value))).decode()

    def read(self, text: str | None, kind: type[_Value], now: datetime) -> _Value | None:
        """The value signed in `text`, or None if it is missing, forged or expired."""
        if not text or len(text) > VALUE_CHARS_MAX or not text.isascii():
            return None
        try:
            value = msgspec.json.decode(base64_decode(self._signer.unsign(text)), type=kind)
        except (itsdangerous.BadData, msgspec.DecodeError):
            return None  # forged, or signed by an older version of this service
        return value if now.timestamp() < value.expires_at else None
