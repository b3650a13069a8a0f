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
    return base64.urlsafe_b64encode(body + _mac(body, key, tenant_id, query)).rstrip(b"=").decode()


def decode_cursor(text: str, key: bytes, tenant_id: str, query: Query) -> Position:
    """The position in the cursor `text`. Raises InvalidCursor unless it was issued for `query`."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCursor from error
    if raw[:1] != bytes([VERSION]):
        raise InvalidCursor
    body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    # Before the body is decoded: nothing that others made up gets to the decoder.
    if not hmac.compare_digest(mac, _mac(body, key, tenant_id, query)):
        raise InvalidCursor
    # Many texts decode to the same bytes; only the one that we would print is accepted.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise InvalidCursor
    watermark, micros, seq = msgspec.msgpack.decode(body[1:], type=tuple[int, int, int])
    return Position(watermark, _EPOCH + timedelta(microseconds=micros), seq)


def _mac(body: bytes, key: bytes, tenant_id: str, query: Query) -> bytes:
    scope = msgspec.json.encode([tenant_id, *_meaning(query)])
    message = len(scope).to_bytes(8, "big") + scope + body
    return hmac.digest(key, message, hashlib.sha256)[:_MAC_BYTES]


def _meaning(query: Query) -> list[Any]:
    """A form of the query that is equal for all spellings of the same query."""
    bounds = [None if at is None else _micros(at) for at in (query.since, query.until)]
    return [query.order, *bounds, sorted(map(_condition_meaning, query.conditions))]


def _condition_meaning(condition: Condition) -> tuple[str, list[tuple[str, bool, bool]]]:
    terms = {(term.text, term.is_prefix, term.is_negated) for term in condition.terms}
    return condition.column, sorted(terms)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
