"""Values that a browser keeps between two requests: signed, short-lived, and not secret."""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from service.secrets import derive_key

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
    """Signs values for one purpose: a value signed for another is not accepted."""

    def __init__(self, secret_key: str, purpose: str) -> None:
        self._key = derive_key(secret_key, purpose)

    def sign(self, value: SignedValue) -> str:
        """`value` as the text of a cookie."""
        body = _encode(msgspec.json.encode(value))
        return f"{body}.{self._mac(body)}"

    def read(self, text: str | None, kind: type[_Value], now: datetime) -> _Value | None:
        """The value signed in `text`, or None if it is missing, forged or expired."""
        if not text or len(text) > VALUE_CHARS_MAX or not text.isascii():
            return None
        body, _, mac = text.partition(".")
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        try:
            kept = msgspec.json.decode(base64.urlsafe_b64decode(body + "=="), type=kind)
        except (msgspec.DecodeError, binascii.Error):
            return None  # signed by an older version of this service
        return kept if now.timestamp() < kept.expires_at else None

    def _mac(self, body: str) -> str:
        return _encode(hmac.digest(self._key, body.encode(), hashlib.sha256))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
