"""Bodies of many items: read within a bound, unpacked within a bound, cut into items."""

import re
import zlib
from itertools import islice
from typing import Final, cast

import msgspec
from quart import Request

from service.errors import (
    BodyTooLarge,
    IdempotencyKeyInvalid,
    NotGzip,
    NotIngestType,
    NotItems,
    TooManyItems,
    UnknownEncoding,
)

NDJSON_TYPE: Final = "application/x-ndjson"
_JSON_TYPE: Final = "application/json"
_KEY_CHARS_MAX: Final = 255
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 4096
_MEMBERS_MAX: Final = 10_000
"""Of a gzip file: one for each line may be, but each costs more than a line."""
_LINE: Final = re.compile(rb"\S[^\n]*")
"""From the first that is no white space on."""
_COMMAS_OF_AN_ITEM: Final = 5
_items_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The request's body without its content encoding, of at most `bytes_max` bytes.

    Raises BodyTooLarge for more on the wire or unpacked, UnknownEncoding, NotGzip.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"gzip", "identity"}:
        raise UnknownEncoding
    raw = cast("bytes", await request.get_data(as_text=False))
    if len(raw) > bytes_max:
        raise BodyTooLarge
    return _gunzip(raw, bytes_max) if encoding == "gzip" else raw


def split_items(body: bytes, mimetype: str, items_max: int) -> list[bytes | msgspec.Raw]:
    """The items of a JSON array or of newline-delimited JSON, not yet looked into.

    Blank lines are no items. Raises NotIngestType, NotItems, TooManyItems.
    """
    if mimetype == NDJSON_TYPE:
        items = _split_lines(body, items_max)
    elif mimetype == _JSON_TYPE:
        items = _split_array(body, items_max)
    else:
        raise NotIngestType
    if len(items) > items_max:
        raise TooManyItems
    return items


def _split_lines(body: bytes, items_max: int) -> list[bytes | msgspec.Raw]:
    # One more than may be: a body can be millions of lines, blank or not.
    return [line[0] for line in islice(_LINE.finditer(body), items_max + 1)]


def _split_array(body: bytes, items_max: int) -> list[bytes | msgspec.Raw]:
    try:
        # To count millions of tiny items takes a tenth of what it takes to keep them apart.
        has_many = body.count(b",") > items_max * _COMMAS_OF_AN_ITEM
        if has_many and len(msgspec.json.decode(body, type=list)) > items_max:
            raise TooManyItems
        return list(_items_decoder.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotItems from error


def idempotency_key(request: Request) -> str | None:
    """The request's `Idempotency-Key`, or None. Raises IdempotencyKeyInvalid."""
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    key = keys[0]
    if len(keys) > 1 or not 1 <= len(key) <= _KEY_CHARS_MAX or not _is_printable_ascii(key):
        raise IdempotencyKeyInvalid
    return key


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _gunzip(packed: bytes, bytes_max: int) -> bytes:
    """All members of a gzip file (RFC 1952), stopped as soon as they are too long."""
    unpacked = bytearray()
    member = zlib.decompressobj(_GZIP_WINDOW)
    offset, members = 0, 1
    while offset < len(packed):
        if member.eof:
            members += 1
            if members > _MEMBERS_MAX:
                raise BodyTooLarge
            member = zlib.decompressobj(_GZIP_WINDOW)
        # Piece by piece: what follows a member is copied, and a body may be all tiny members.
        piece = packed[offset : offset + _PIECE_BYTES]
        try:
            unpacked += member.decompress(piece, bytes_max + 1 - len(unpacked))
        except zlib.error as error:
            raise NotGzip from error
        if len(unpacked) > bytes_max:
            raise BodyTooLarge
        offset += len(piece) - len(member.unused_data)
    if not member.eof:
        raise NotGzip
    return bytes(unpacked)
