"""Cursors: a reader's position in one query, opaque and signed."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from analytics.model.filters import Condition, Query

VERSION: Final = 2
"""The version of a cursor's contents and of the query it is bound to. Others are refused."""

_MAC_BYTES: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidCursor(ValueError):
    """The text is not a cursor that this service issued for this query."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last row a reader has seen, and the highest `seq` of the snapshot of page one.

    Rows accepted since (seq above `watermark`) stay out of later pages, so that no page shifts.
    """

    watermark: int
    created_at: datetime
    seq: int


def encode_cursor(position: Position, key: bytes, tenant_id: str, query: Query) -> str:
    """`position` as text that only continues this `query` of this tenant."""
    place = (position.watermark, _micros(position.created_at), position.seq)
    body = bytes([VERSION]) + msgspec.msgpack.encode(place)
    return seal(body, key, _scope(tenant_id, query))


def decode_cursor(text: str, key: bytes, tenant_id: str, query: Query) -> Position:
    """The position in the cursor `text`. Raises InvalidCursor unless it was issued for `query`."""
    body = unseal(text, key, _scope(tenant_id, query))
    if body[:1] != bytes([VERSION]):
        raise InvalidCursor
    watermark, micros, seq = msgspec.msgpack.decode(body[1:], type=tuple[int, int, int])
    return Position(watermark, _EPOCH + timedelta(microseconds=micros), seq)


def seal(body: bytes, key: bytes, scope: bytes) -> str:
    """`body` as text that is signed for `scope`."""
    return base64.urlsafe_b64encode(body + _mac(body, key, scope)).rstrip(b"=").decode()


def unseal(text: str, key: bytes, scope: bytes) -> bytes:
    """What `text` seals. Raises InvalidCursor unless it was signed for `scope`.

    Before that is known, nothing that others made up gets to a decoder.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCursor from error
    body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(body, key, scope)):
        raise InvalidCursor
    # Many texts decode to the same bytes; only the one that we would print is accepted.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise InvalidCursor
    return body


def _mac(body: bytes, key: bytes, scope: bytes) -> bytes:
    message = len(scope).to_bytes(8, "big") + scope + body
    return hmac.digest(key, message, hashlib.sha256)[:_MAC_BYTES]


def _scope(tenant_id: str, query: Query) -> bytes:
    return msgspec.json.encode([tenant_id, *_meaning(query)])


def _meaning(query: Query) -> list[Any]:
    """A form of the query that is equal for all spellings of the same query."""
    bounds = [None if at is None else _micros(at) for at in (query.since, query.until)]
    return [query.order, *bounds, sorted(map(_condition_meaning, query.conditions))]


def _condition_meaning(condition: Condition) -> tuple[str, list[tuple[str, bool, bool]]]:
    terms = {(term.text, term.is_prefix, term.is_negated) for term in condition.terms}
    return condition.column, sorted(terms)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
