"""Request bodies, bounded in size both as sent and decompressed."""

import zlib
from typing import Final, cast

from quart import Request

from service.core.errors import BodyTooLarge
from service.core.threads import in_thread
from service.web.refusals import IDEMPOTENCY_KEY_INVALID, NOT_GZIP, UNKNOWN_ENCODING

_KEY_CHARS_MAX: Final = 255
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 4096
_MEMBERS_MAX: Final = 10_000
"""Limit for a gzip file: a member for each line is legitimate, but costs more than the line."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The request's body without its content encoding, of at most `bytes_max` bytes.

    Raises BodyTooLarge for more, as sent or decompressed; UNKNOWN_ENCODING; NOT_GZIP.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"gzip", "identity"}:
        raise UNKNOWN_ENCODING
    raw = cast("bytes", await request.get_data(as_text=False))
    if len(raw) > bytes_max:
        raise BodyTooLarge
    return await in_thread(_gunzip, raw, bytes_max) if encoding == "gzip" else raw


def idempotency_key(request: Request) -> str | None:
    """The request's `Idempotency-Key`, or None. Raises IDEMPOTENCY_KEY_INVALID."""
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    key = keys[0]
    if len(keys) > 1 or not 1 <= len(key) <= _KEY_CHARS_MAX or not _is_printable_ascii(key):
        raise IDEMPOTENCY_KEY_INVALID
    return key


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _gunzip(packed: bytes, bytes_max: int) -> bytes:
    """Decompress all members of a gzip file (RFC 1952); stop as soon as they are too long."""
    unpacked = bytearray()
    member = zlib.decompressobj(_GZIP_WINDOW)
    offset, members = 0, 1
    while offset < len(packed):
        if member.eof:
            members += 1
            if members > _MEMBERS_MAX:
                raise BodyTooLarge
            member = zlib.decompressobj(_GZIP_WINDOW)
        # In pieces: zlib copies the data after each member, and all members may be tiny.
        piece = packed[offset : offset + _PIECE_BYTES]
        try:
            # At least 1, because 0 means without a limit.
            unpacked += member.decompress(piece, bytes_max + 1 - len(unpacked))
        except zlib.error as error:
            raise NOT_GZIP from error
        if len(unpacked) > bytes_max:
            raise BodyTooLarge
        offset += len(piece) - len(member.unused_data)
    if not member.eof:
        raise NOT_GZIP
    return bytes(unpacked)
