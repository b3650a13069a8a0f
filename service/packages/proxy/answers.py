"""Responses of a registry, the limits that each must keep, and how their bodies are read."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """The limits of one response, in bytes and seconds."""

    document_bytes: int = 64 * 2**20
    file_bytes: int = 2 * 2**30
    connect_s: float = 5.0
    progress_s: float = 15.0
    """The longest pause between two reads. pip and npm give up on us no sooner than that."""

    document_s: float = 60.0
    query_s: float = 3.0
    """How long the answer to a query may take while the registry is suspect: npm waits for that of
    its audit at the end of each install, and goes on without it."""

    file_s: float = 1800.0
    slow_s: float = 30.0
    slow_bytes: int = 64 * 1024
    """A file of which fewer bytes arrive in so many seconds is given up: it holds a place."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The etag and date by which a registry recognises a document's version (RFC 9110, 8.8)."""

    etag: str | None = None
    last_modified: str | None = None

    @property
    def conditions(self) -> dict[str, str]:
        """The header fields that ask for the document unless it is still this version."""
        fields = {"if-none-match": self.etag, "if-modified-since": self.last_modified}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RegistryDocument:
    """A registry's response, whole and decompressed."""

    url: str
    """Where it came from, after redirects: the base of its relative links."""

    content_type: str
    pieces: tuple[bytes, ...]
    """The body, in order, unjoined: joining 20 MB holds the interpreter's lock for 30 ms."""

    validators: Validators = Validators()

    @property
    def body(self) -> bytes:
        """All pieces joined; only for a short document, or in another process."""
        return b"".join(self.pieces)

    @property
    def size(self) -> int:
        """The length of the body."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class FileStream:
    """A file that is being received: its bytes as the registry stores them."""

    length: int | None
    """Its size, if the registry states it; the connection fails if that is wrong."""

    pieces: AsyncIterator[bytes]


@dataclass(slots=True)
class UpstreamHealth:
    """When this process's requests last succeeded and failed, and why, for operators."""

    answered_at: datetime | None = None
    failed_at: datetime | None = None
    failure: str | None = None
    """Why the last failed request failed, without credentials or the registry's own text."""


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
