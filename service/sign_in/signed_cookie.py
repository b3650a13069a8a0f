"""What a browser keeps for us between two requests: signed, short-lived, readable by its owner."""

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


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something kept until `expires_at` (seconds since 1970); `id` makes it count only once."""

    id: str
    expires_at: int


_Kept = TypeVar("_Kept", bound=Kept)


def expiry(now: datetime, lifetime: timedelta = LIFETIME) -> int:
    """When something kept from `now` on is too old."""
    return int((now + lifetime).timestamp())


class Signer:
    """Signs what is kept for one purpose: a value for another one is no value for this."""

    def __init__(self, secret_key: str, purpose: str) -> None:
        self._key = derive_key(secret_key, purpose)

    def sign(self, kept: Kept) -> str:
        """`kept` as a cookie's value."""
        body = _encode(msgspec.json.encode(kept))
        return f"{body}.{self._mac(body)}"

    def read(self, value: str | None, kind: type[_Kept], now: datetime) -> _Kept | None:
        """What was kept, or None if nothing of ours is, or not any more."""
        if not value or len(value) > VALUE_CHARS_MAX or not value.isascii():
            return None
        body, _, mac = value.partition(".")
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
