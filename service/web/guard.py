"""Turning away what is no proper request before the framework trips over it.

Quart and werkzeug assume that a target is a path, that a query is ASCII and that a host can be a
host name. The server passes on what a client sent, whatever it was.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from service.ids import new_request_id
from service.web.answers import JSON_TYPE

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

_BODY: Final = b'{"error": "bad request"}'
_log = structlog.get_logger(__name__)


def guarded(app: ASGIApp) -> ASGIApp:
    """`app`, behind a check that answers 400 in its place."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's own types
        if scope["type"] != "http" or is_proper(scope):
            await app(scope, receive, send)
            return
        request_id = new_request_id()
        _log.info("request_turned_away", request_id=request_id, status=400)
        headers = {
            "content-type": JSON_TYPE,
            "content-length": str(len(_BODY)),
            "x-request-id": request_id,
            "connection": "close",
        }
        await send(
            {
                "type": "http.response.start",
                "status": 400,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": _BODY})

    return guard


def is_proper(scope: Any) -> bool:  # noqa: ANN401 - an ASGI scope
    """True if target, query, method and host of an ASGI scope are what RFC 9110 lets them be."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return (
        scope["method"].isascii()
        and scope["path"].startswith("/")
        and scope["query_string"].isascii()
        and all(map(_is_host, hosts))
    )


def _is_host(host: bytes) -> bool:
    try:
        host.decode("ascii").encode("idna")
    except UnicodeError:
        return False
    return True
