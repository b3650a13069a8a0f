"""Request bodies, bounded in size both as sent and decompressed."""

import asyncio
import zlib
from collections.abc import Generator
from typing import Any, Final, cast

from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
)
from quart import Request
from quart.asgi import ASGIHTTPConnection
from quart.wrappers.request import Body

from service.core.errors import BodyTooLarge
from service.core.threads import in_thread
from service.web.refusals import IDEMPOTENCY_KEY_INVALID, NOT_GZIP, UNKNOWN_ENCODING

_KEY_CHARS_MAX: Final = 255
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 4096
_UNREAD_BYTES_MAX: Final = 2**20
"""What is received of a body that nothing reads as yet, about: an archive may have a gigabyte."""
_MEMBERS_MAX: Final = 10_000
"""Limit for a gzip file: a member for each line is legitimate, but costs more than the line."""


class ObservedBody(Body):
    """A request's body that knows whether all of it has arrived.

    One that is read in pieces, or not yet, is received only as fast as it is read.
    """

    is_complete = False

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(expected_content_length, max_content_length)
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_limit = True
        self._unread_bytes = 0

    def set_complete(self) -> None:
        """Called by Quart with the last byte, or when no more are accepted."""
        self.is_complete = True
        super().set_complete()

    def append(self, data: bytes) -> None:
        """Called by Quart with the next bytes."""
        super().append(data)
        self._unread_bytes += len(data)
        if self._has_limit and self._unread_bytes >= _UNREAD_BYTES_MAX:
            self._has_room.clear()

    async def __anext__(self) -> bytes:
        """The bytes that have arrived."""
        data = await super().__anext__()
        self._unread_bytes = 0
        self._has_room.set()
        return data

    def __await__(self) -> Generator[Any]:
        """All bytes."""
        self.receive_all()
        return super().__await__()

    def receive_all(self) -> None:
        """Receive it whether it is read or not."""
        self._has_limit = False
        self._has_room.set()

    async def room(self) -> None:
        """Wait until more may be received."""
        await self._has_room.wait()


class BodyReceiver(ASGIHTTPConnection):
    """Receives a request's body no faster than it is read."""

    async def handle_messages(self, request: Request, receive: ASGIReceiveCallable) -> None:
        """Receive the body until the client leaves."""
        body = cast("ObservedBody", request.body)

        async def receive_next() -> ASGIReceiveEvent:
            await body.room()
            return await receive()

        await super().handle_messages(request, receive_next)

    async def handle_request(self, request: Request, send: ASGISendCallable) -> None:
        """Answer the request."""
        body = cast("ObservedBody", request.body)

        async def send_next(message: ASGISendEvent) -> None:
            # Nothing reads the rest, which the server must be able to get rid of.
            body.receive_all()
            await send(message)

        await super().handle_request(request, send_next)


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
    is_printable = key.isascii() and key.isprintable()
    if len(keys) > 1 or not 1 <= len(key) <= _KEY_CHARS_MAX or not is_printable:
        raise IDEMPOTENCY_KEY_INVALID
    return key


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
