"""Compresses pages and JSON answers, where that cannot reveal their content.

The length of a compressed answer tells observers of the network a little about its content. If
another site could choose part of the answer, with links that a browser is made to follow, it could
guess the rest (BREACH). So answers are compressed for requests from our own pages, for addresses
typed in, and for scripts, which have no session cookie; never for requests caused by another site.
"""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from quart import Quart, Request, Response
from quart.globals import request_ctx
from quart.wrappers.response import IterableBody

from analytics.export.compression import Compression, compressed, compressor
from service.core.header_names import SESSION_COOKIE
from service.core.threads import in_thread
from service.web.responses import JSON_TYPE

BYTES_MIN: Final = 1_024
"""Shorter answers fit into one packet anyway."""

THREAD_BYTES_MIN: Final = 1 << 18
"""Longer answers are compressed in a thread: these bytes take 2 ms."""

_TYPES: Final = frozenset({JSON_TYPE, "text/html"})
_STATIC_TYPES: Final = frozenset({"text/css", "text/javascript"})
"""Our own files, the same for every client: their length reveals nothing."""

_WITH_ETAG: Final = frozenset({HTTPStatus.OK, HTTPStatus.NOT_MODIFIED})
_OWN_SITE: Final = frozenset({"same-origin", "none"})


def compress_answers(app: Quart) -> None:
    """Compress the pages and JSON answers of `app` for clients that ask for it."""
    app.after_request(_compress)


async def _compress(response: Response) -> Response:
    request = request_ctx.request
    if response.mimetype in _STATIC_TYPES and response.status_code in _WITH_ETAG:
        return await _compress_static(request, response)
    if response.status_code == HTTPStatus.NOT_MODIFIED:
        return response  # no content, and its type is that of none
    if response.mimetype not in _TYPES or "accept-encoding" in response.vary:
        return response  # exports and the API's documentation choose a coding themselves
    response.vary.update(("accept-encoding", "sec-fetch-site"))
    coding = content_coding(request)
    if coding is None or request.method == "HEAD" or not is_of_own_making(request):
        return response
    if isinstance(response.response, IterableBody):
        response.response = IterableBody(_pieces(response.response, coding))
    elif (response.content_length or 0) >= BYTES_MIN:
        await _compress_whole(response, coding)
    else:
        return response
    response.headers["content-encoding"] = coding.value
    return response


async def _compress_static(request: Request, response: Response) -> Response:
    response.vary.add("accept-encoding")
    etag, _ = response.get_etag()
    if etag is not None:
        # One for all codings and for HEAD: the same file, but other bytes (RFC 9110, 8.8.1).
        response.set_etag(etag, weak=True)
    coding = content_coding(request)
    is_short = (response.content_length or 0) < BYTES_MIN
    if coding is None or request.method == "HEAD" or is_short:
        return response
    await _compress_whole(response, coding)
    response.headers["content-encoding"] = coding.value
    return response


async def _compress_whole(response: Response, coding: Compression) -> None:
    content = await response.get_data(as_text=False)
    is_long = len(content) >= THREAD_BYTES_MIN
    response.set_data(
        await in_thread(compressed, content, coding) if is_long else compressed(content, coding)
    )


async def _pieces(body: IterableBody, coding: Compression) -> AsyncIterator[bytes]:
    """The compressed body, flushed after each piece: a browser can show it before the next one."""
    stream = compressor(coding)
    async with body as pieces:
        async for piece in pieces:
            if piece:
                yield stream.add(piece.encode() if isinstance(piece, str) else piece)
    yield stream.finish()


def is_of_own_making(request: Request) -> bool:
    """True unless another site may have caused `request`, and chosen its parameters.

    Browsers tell this in `Sec-Fetch-Site`, which pages cannot set. A request without it comes from
    a script or, if it has a session cookie, from an old browser.
    """
    site = request.headers.get("sec-fetch-site")
    return SESSION_COOKIE not in request.cookies if site is None else site in _OWN_SITE


_PREFERRED: Final = (Compression.ZSTD, Compression.GZIP)
"""The cheaper one first, for clients that weight both equally."""


def content_coding(request: Request) -> Compression | None:
    """The coding that this client prefers, or None to send the bytes unencoded.

    A coding is used only if the client names it or `*`, with at least the quality of `identity`
    if that is named. Anything that cannot be parsed is ignored.
    """
    qualities = {name.lower(): quality for name, quality in request.accept_encodings}
    default = qualities.get("*", 0.0)
    best = max(_PREFERRED, key=lambda coding: qualities.get(coding, default))
    quality = qualities.get(best, default)
    return best if quality > 0 and quality >= qualities.get("identity", 0.0) else None
