"""Cached responses that do not depend on the request or on data: rendered once per process."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from quart import Request, Response, current_app

from analytics.export.compression import Compression, compressed
from service.web.content_negotiation import content_coding

_EXTENSION: Final = "countersign.static_responses"
_LOCK: Final = f"{_EXTENSION}.lock"


class StaticResponse:
    """Static content with an ETag, unencoded and in each content coding."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self._bodies = {coding: compressed(content, coding) for coding in (None, *Compression)}
        self._content_type = content_type
        self._etag = hashlib.sha256(content).hexdigest()[:32]

    async def to(self, request: Request) -> Response:
        """The response to `request`: 304 if its client has the content (RFC 9110, 13.1.2)."""
        coding = content_coding(request)
        response = Response(self._bodies[coding], content_type=self._content_type)
        if coding is not None:
            response.headers["content-encoding"] = coding.value
        response.vary.add("accept-encoding")
        response.cache_control.no_cache = True  # cacheable, but must be revalidated
        response.set_etag(f"{self._etag}-{coding or 'identity'}")
        return await response.make_conditional(request)


async def cached(name: str, make: Callable[[], Awaitable[StaticResponse]]) -> StaticResponse:
    """The response that this app caches under `name`; `make` creates it on first use."""
    cache: dict[str, StaticResponse] = current_app.extensions.setdefault(_EXTENSION, {})
    if name not in cache:
        # Made once, however many ask first: a flood would else occupy all threads for seconds.
        async with current_app.extensions.setdefault(_LOCK, asyncio.Lock()):
            if name not in cache:
                cache[name] = await make()
    return cache[name]
