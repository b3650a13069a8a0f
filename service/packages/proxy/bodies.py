"""Reads a registry's response into memory, with a bound on its decompressed size."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""Zlib's way to ask for a gzip header and trailer (RFC 1952)."""

_STEP_BYTES: Final = 256 * 1024
"""What is decompressed at once: about a millisecond of the event loop."""

_PIECE_BYTES: Final = 4096
MEMBERS_MAX: Final = 1000
"""Of a gzip body, each of which takes longer than its bytes; clients and registries send one."""


class BodyFault(Exception):
    """Why a body cannot be read; the text repeats no part of it."""


async def read_body(raw: AsyncIterator[bytes], coding: str, bytes_max: int) -> tuple[bytes, ...]:
    """The decoded body of `raw`, which has the content coding `coding`. Raises BodyFault.

    Holds at most one step more than `bytes_max` bytes, at any compression ratio.
    """
    if coding not in {"identity", "gzip", "x-gzip"}:
        raise BodyFault("is in a content coding that was not asked for")
    decoder = Gunzip() if coding != "identity" else None
    pieces: list[bytes] = []
    size = 0
    async for received in raw:
        for piece in [received] if decoder is None else decoder.feed(received):
            # Counted once decompressed: the bytes received say nothing about the memory they take.
            size += len(piece)
            if size > bytes_max:
                raise BodyFault(f"is longer than {bytes_max} bytes")
            pieces.append(piece)
            if decoder is not None:
                await asyncio.sleep(0)  # a megabyte of gzip may be a gigabyte of zeros
    if decoder is not None and not decoder.is_complete:
        raise BodyFault("is gzip that ends too early")
    return tuple(pieces)


class Gunzip:
    """Decompresses gzip in steps of bounded size."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._has_input = False
        self._members = 1

    @property
    def is_complete(self) -> bool:
        """Whether all members so far have ended, or there was no byte at all."""
        return self._stream.eof or not self._has_input

    def feed(self, received: bytes) -> Iterator[bytes]:
        """The output for `received`, in steps, each produced on demand. Raises BodyFault."""
        # In pieces: zlib copies the data after each member, and all members may be tiny.
        for at in range(0, len(received), _PIECE_BYTES):
            yield from self._feed(received[at : at + _PIECE_BYTES])

    def _feed(self, left: bytes) -> Iterator[bytes]:
        while left:
            if self._stream.eof:  # a member follows another one (RFC 1952, 2.2)
                self._members += 1
                if self._members > MEMBERS_MAX:
                    raise BodyFault(f"is gzip of more than {MEMBERS_MAX} members")
                self._stream = zlib.decompressobj(_GZIP_WINDOW)
            self._has_input = True
            try:
                piece = self._stream.decompress(left, _STEP_BYTES)
            except zlib.error as error:
                raise BodyFault("is not valid gzip") from error
            left = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                yield piece
