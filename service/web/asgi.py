"""The ASGI layers around the app: one refuses malformed requests, one completes each response.

Quart and werkzeug assume that a target is a path, that a query is ASCII, that a host is a valid
host name, and that only WebSocket endpoints are asked for a WebSocket. The server passes on
anything that a client sends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import structlog

from service.core.ids import new_request_id
from service.web.responses import JSON_TYPE

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

_BODY: Final = b'{"error":"bad request"}'
_DRAIN_S: Final = 60.0
_HOST_BYTES_MAX: Final = 512
"""Names have at most 253 characters (RFC 1035); the rest is for a port."""

_draining: Final[set[asyncio.Task[None]]] = set()
"""References that keep running tasks from being garbage-collected."""

_log = structlog.get_logger(__name__)


def guarded(app: ASGIApp) -> ASGIApp:
    """`app`, behind a check that answers malformed requests with 400."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        if scope["type"] == "websocket":  # no endpoint takes one
            await _reject(receive, send, "websocket.http.response")
        elif scope["type"] == "http" and not is_proper(scope):
            await _reject(receive, send, "http.response")
        else:
            await app(scope, receive, send)

    return guard


async def _reject(receive: Any, send: Any, kind: str) -> None:  # noqa: ANN401 - ASGI's own types
    """Answer 400. `kind` is the prefix of the ASGI messages of this kind of response."""
    # Goes on after the response: hypercorn puts the request's end into the same short queue as its
    # body, and would wait indefinitely for room there.
    draining = asyncio.create_task(_drain(receive))
    _draining.add(draining)
    draining.add_done_callback(_draining.discard)
    request_id = new_request_id()
    _log.info("request_rejected", request_id=request_id, status=400)
    headers = {
        "content-type": JSON_TYPE,
        "content-length": str(len(_BODY)),
        "x-request-id": request_id,
        "connection": "close",
    }
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": f"{kind}.start", "status": 400, "headers": lines})
    await send({"type": f"{kind}.body", "body": _BODY})


async def _drain(receive: Any) -> None:  # noqa: ANN401 - ASGI's own type
    """Discard the rest of a request."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while not (await receive())["type"].endswith(".disconnect"):
                pass


def is_proper(scope: Any) -> bool:  # noqa: ANN401 - an ASGI scope
    """True if target, query, method, host and framing of an ASGI scope conform to RFC 9110."""
    names = {name for name, _ in scope["headers"]}
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return (
        scope["method"].isascii()
        and scope["path"].startswith("/")
        and scope["query_string"].isascii()
        and all(len(host) <= _HOST_BYTES_MAX and _is_encodable(host) for host in hosts)
        # With both, a proxy and this server may disagree on where the request ends: request
        # smuggling (RFC 9112, 6.1).
        and not {b"content-length", b"transfer-encoding"} <= names
    )


# Cached: this takes a tenth of a small request, and clients send few different hosts.
@lru_cache(maxsize=1024)
def _is_encodable(host: bytes) -> bool:
    try:
        host.decode("ascii").encode("idna")
    except UnicodeError:
        return False
    return True


_REPRESENTATION: Final = frozenset(
    {
        b"content-type",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-range",
        b"last-modified",
    }
)
"""Fields that describe content. Each of our responses with content to confirm has an etag, so that
no cache needs `last-modified`."""


def with_headers(app: ASGIApp, headers: Mapping[str, str]) -> ASGIApp:
    """`app`, adding those of `headers` that a response has not set itself.

    A 304 loses what describes content (RFC 9110, 15.4.5): frameworks give each response a type, and
    a client's cache stores it over the type of the content that it has.
    """
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def framed(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        async def send_with_headers(message: Any) -> None:  # noqa: ANN401
            if message["type"].endswith("http.response.start"):  # WebSocket's, too
                given = message["headers"]
                if message["status"] == HTTPStatus.NOT_MODIFIED:
                    given = [line for line in given if line[0].lower() not in _REPRESENTATION]
                own = {name for name, _ in given}
                added = [line for line in lines if line[0] not in own]
                message = {**message, "headers": [*given, *added]}
            await send(message)

        await app(scope, receive, send if scope["type"] == "lifespan" else send_with_headers)

    return framed
