"""Cached responses that do not depend on the request or on data: rendered once per process."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from quart import Request, Response, current_app

from analytics.export.compression import Compression, compressor
from service.web.content_negotiation import content_coding

_EXTENSION: Final = "countersign.fixed_answers"


class FixedAnswer:
    """One content with an ETag, as it is and in each content coding."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self._bodies = {coding: _coded(content, coding) for coding in (None, *Compression)}
        self._content_type = content_type
        self._etag = hashlib.sha256(content).hexdigest()[:32]

    async def to(self, request: Request) -> Response:
        """The answer to `request`: 304 if its client has the content already (RFC 9110, 13.1.2)."""
        coding = content_coding(request)
        response = Response(self._bodies[coding], content_type=self._content_type)
        if coding is not None:
            response.headers["content-encoding"] = coding.value
        response.vary.add("accept-encoding")
        response.cache_control.no_cache = True  # may be kept, but not used unasked
        response.set_etag(f"{self._etag}-{coding or 'identity'}")
        return await response.make_conditional(request)


async def fixed_answer(name: str, make: Callable[[], Awaitable[FixedAnswer]]) -> FixedAnswer:
    """The answer that this app keeps under `name`; `make` is called for the first request."""
    kept: dict[str, FixedAnswer] = current_app.extensions.setdefault(_EXTENSION, {})
    if name not in kept:
        kept[name] = await make()  # two first requests may make the same, and none waits
    return kept[name]


def _coded(content: bytes, coding: Compression | None) -> bytes:
    stream = compressor(coding)
    return stream.add(content) + stream.finish()
