"""Caches rendered documents until the registry's document, the policy or time changes them."""

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from quart import Request, Response

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.export.compression import Compression
from service.core.clock import Clock
from service.core.header_names import API_KEY_HEADER
from service.core.single_flight import SingleFlight

PAGE_BYTES_MAX: Final = 32 * 2**20
"""Memory of a process for rendered pages."""

GZIP_BYTES_MIN: Final = 1024
PLAIN_BYTES_MAX: Final = 16 * 1024
"""Longer pages are kept only compressed: package managers ask for gzip, and a page of a megabyte is
decompressed in 2 ms."""

STEP_BYTES: Final = 256 * 1024
"""How much is decompressed at once of a page that is longer than UNSTEPPED_BYTES_MAX."""

UNSTEPPED_BYTES_MAX: Final = 2 * 2**20

_GZIP_LEVEL: Final = 5
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""Zlib's way to ask for a gzip header and trailer (RFC 1952)."""


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A rendered page; `until` is when the passage of time changes it, None for never."""

    size: int
    plain: bytes | None
    """None for a long page."""

    compressed: bytes | None
    """None for a short page."""

    etag: str
    until: datetime | None

    @property
    def kept_bytes(self) -> int:
        """The memory it takes."""
        return ENTRY_BYTES + len(self.plain or b"") + len(self.compressed or b"")


class PageCache:
    """The rendered pages of all organisations, for one process."""

    def __init__(self, clock: Clock, observe: Callable[[str], None] = lambda _: None) -> None:
        """`observe` gets `hits` or `rendered` for each request, for metrics."""
        self._observe = observe
        self._clock = clock
        self._pages = ByteCache(PAGE_BYTES_MAX)
        self._rendering = SingleFlight[RenderedPage]()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[RenderedPage]]) -> RenderedPage:
        """The page of `key`, made by `make` unless it is known.

        `key` must contain everything that the page depends on, except the time.
        """
        is_known, page = self._pages.find(key)
        # `<`, because at `until` itself a release is old enough.
        if is_known and (page.until is None or self._clock() < page.until):
            self._observe("hits")
            return page  # type: ignore[no-any-return]
        self._observe("rendered")

        async def keep() -> RenderedPage:
            made = await make()
            self._pages.keep(key, made, made.kept_bytes)
            return made

        return await self._rendering.run(key, keep)

    async def close(self) -> None:
        """Cancel all rendering under way."""
        await self._rendering.close()


def make_page(pieces: Iterable[bytes], until: datetime | None) -> RenderedPage:
    """The page that consists of `pieces`, which are never joined.

    Joining 20 MB takes 10 ms or more, in which no other thread runs.
    """
    digest, stream, size = hashlib.sha256(), zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW), 0
    compressed: list[bytes] = []
    plain = bytearray()
    for piece in pieces:
        size += len(piece)
        digest.update(piece)
        compressed.append(stream.compress(piece))
        if size <= PLAIN_BYTES_MAX:
            plain += piece
    compressed.append(stream.flush())
    return RenderedPage(
        size,
        bytes(plain) if size <= PLAIN_BYTES_MAX else None,
        b"".join(compressed) if size >= GZIP_BYTES_MIN else None,
        digest.hexdigest()[:32],
        until,
    )


def page_answer(request: Request, page: RenderedPage, content_type: str) -> Response:
    """The response with `page`, or 304 if the client already has it."""
    headers = {
        "etag": f'W/"{page.etag}"',  # weak: the same page in two codings
        # Clients ask again each time: what is allowed may change at any moment.
        "cache-control": "private, no-cache",
        "vary": f"accept, accept-encoding, authorization, {API_KEY_HEADER}",
    }
    if request.if_none_match.contains_weak(page.etag):
        return Response(status=304, headers=headers)
    body: bytes | AsyncIterator[bytes]
    if page.compressed is not None and request.accept_encodings["gzip"] > 0:
        headers["content-encoding"] = Compression.GZIP.value
        body = page.compressed
    else:
        headers["content-length"] = str(page.size)
        body = plain_body(page)
    answer = Response(body, headers=headers, content_type=content_type)
    # A slow client needs more than Quart's minute for 20 MB; the connection's own limits end a
    # response that makes no progress.
    answer.timeout = None
    return answer


def plain_body(page: RenderedPage) -> bytes | AsyncIterator[bytes]:
    """The page without a content coding; a very long page in steps."""
    if page.plain is not None:
        return page.plain
    compressed = page.compressed or b""
    if page.size <= UNSTEPPED_BYTES_MAX:
        return zlib.decompress(compressed, _GZIP_WINDOW, page.size)
    return _decompressed(compressed)


async def _decompressed(compressed: bytes) -> AsyncIterator[bytes]:
    """The contents in steps, between which other requests are served."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    view, at = memoryview(compressed), 0
    while at < len(view) or stream.unconsumed_tail:
        taken = stream.unconsumed_tail
        if not taken:
            taken = bytes(view[at : at + STEP_BYTES])
            at += len(taken)
        piece = stream.decompress(taken, STEP_BYTES)
        if piece:
            yield piece
            # A client that reads fast enough never makes the writer wait, so yield explicitly.
            await asyncio.sleep(0)
    if rest := stream.flush():
        yield rest
