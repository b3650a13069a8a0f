"""Header fields of every response: those that each has, and those that a 304 must not have."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from service.web.request_validation import ASGIApp

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
