"""Rendered documents, until the registry's document, the policy or time changes them."""

import gzip
import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from quart import Request, Response

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.export.compression import Compression
from service.clock import Clock
from service.lake import Lake
from service.proxy.single_flight import SingleFlight
from service.web.header_names import API_KEY_HEADER

PAGE_BYTES_MAX: Final = 64 * 2**20
"""Memory for rendered pages of a process."""

HEAVY_ITEMS: Final = 500
"""Pages of more files or versions are rendered in a thread: 500 take a few milliseconds."""

GZIP_BYTES_MIN: Final = 1024
_GZIP_LEVEL: Final = 5


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page in both codings; `until` is when time alone changes it, None for never."""

    body: bytes
    compressed: bytes | None
    etag: str
    until: datetime | None


class PageCache:
    """The rendered pages of all organisations, for one process."""

    def __init__(
        self, lake: Lake, clock: Clock, observe: Callable[[str], None] = lambda _: None
    ) -> None:
        """`observe` is told `hits` or `rendered` for each request, for metrics."""
        self._observe = observe
        self._lake = lake
        self._clock = clock
        self._pages = ByteCache(PAGE_BYTES_MAX)
        self._rendering = SingleFlight[Page]()

    async def get(
        self,
        key: Hashable,
        items: int,
        render: Callable[[], tuple[bytes, datetime | None]],
    ) -> Page:
        """The page of `key`, by `render` unless it is known: the body, and how long it holds.

        `key` must name everything the page depends on but the time; `items` is its length.
        """
        is_known, page = self._pages.find(key)
        if not is_known or (page.until is not None and self._clock() >= page.until):
            self._observe("rendered")
            page = await self._rendering.run(key, partial(self._render, key, items, render))
        else:
            self._observe("hits")
        return page  # type: ignore[no-any-return]

    async def close(self) -> None:
        """End what is under way."""
        await self._rendering.close()

    async def _render(
        self,
        key: Hashable,
        items: int,
        render: Callable[[], tuple[bytes, datetime | None]],
    ) -> Page:
        made = partial(_page, render)
        page = await self._lake.run_in_thread(made) if items > HEAVY_ITEMS else made()
        self._pages.keep(key, page, ENTRY_BYTES + len(page.body) + len(page.compressed or b""))
        return page


def page_answer(request: Request, page: Page, content_type: str) -> Response:
    """`page` for this client, or 304 if it has it already."""
    is_compressed = page.compressed is not None and request.accept_encodings["gzip"] > 0
    headers = {
        "etag": f'W/"{page.etag}"',  # weak: the same page in two codings
        # Asked again each time: what is allowed may change at any moment.
        "cache-control": "private, no-cache",
        "vary": f"accept, accept-encoding, authorization, {API_KEY_HEADER}",
    }
    if request.if_none_match.contains_weak(page.etag):
        return Response(status=304, headers=headers)
    if is_compressed:
        headers["content-encoding"] = Compression.GZIP.value
    body = page.compressed if is_compressed and page.compressed is not None else page.body
    answer = Response(body, headers=headers, content_type=content_type)
    # A document of 20 MB takes a slow client more than Quart's minute; the connection's own limits
    # are for a lack of progress.
    answer.timeout = None
    return answer


def _page(render: Callable[[], tuple[bytes, datetime | None]]) -> Page:
    body, until = render()
    compressed = gzip.compress(body, _GZIP_LEVEL, mtime=0) if len(body) >= GZIP_BYTES_MIN else None
    return Page(body, compressed, hashlib.sha256(body).hexdigest()[:32], until)
