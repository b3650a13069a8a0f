"""Default headers of every response."""

from collections.abc import Mapping
from typing import Any

from service.web.request_validation import ASGIApp


def with_headers(app: ASGIApp, headers: Mapping[str, str]) -> ASGIApp:
    """`app`, adding those of `headers` that a response has not set itself."""
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def framed(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        async def send_with_headers(message: Any) -> None:  # noqa: ANN401
            if message["type"].endswith("http.response.start"):  # WebSocket's, too
                own = {name for name, _ in message["headers"]}
                added = [line for line in lines if line[0] not in own]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await app(scope, receive, send if scope["type"] == "lifespan" else send_with_headers)

    return framed
