"""The app over a data dir in the command's own process: no sockets and no background jobs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn

import httpx2
from quart import Quart, Request
from werkzeug.exceptions import HTTPException

from service.access.callers import OPERATOR_SCOPE, Operator
from service.app.application import app_of
from service.app.composition import Services
from service.core.errors import Internal, MethodNotAllowed, NotFound, Refusal
from service.web.bodies import ObservedBody
from service.web.request_parsing import NO_LIMIT

_OF_HTTP: Final[dict[int, type[Refusal]]] = {
    refusal.status: refusal for refusal in (NotFound, MethodNotAllowed)
}

_Message = dict[str, Any]


class _OperatorRequest(Request):
    body_class = ObservedBody


def operator_app(services: Services) -> Quart:
    """The app whose errors are raised to the command, with what only the operator is told.

    A body has no limit: the operator sends it.
    """
    app = app_of(services, _raise_errors, _OperatorRequest)
    app.config["MAX_CONTENT_LENGTH"] = NO_LIMIT  # None would mean the default of JSON bodies
    return app


def _raise_errors(app: Quart) -> None:
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.register_error_handler(HTTPException, _raise_refusal)


async def _raise_refusal(error: HTTPException) -> NoReturn:
    raise _OF_HTTP.get(error.code or 500, Internal) from error


class AppTransport(httpx2.AsyncBaseTransport):
    """Sends requests to `app` as `operator`, and raises what the app raises."""

    def __init__(self, app: Quart, operator: Operator) -> None:
        self._app = app
        self._operator = operator

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to `request`; the bodies of both are made while they are read."""
        exchange = _Exchange(request.stream)
        exchange.begin(self._app, self._scope(request))
        try:
            start = await exchange.next_message()
        except asyncio.CancelledError:
            await exchange.cancel()
            raise
        return httpx2.Response(start["status"], headers=start["headers"], stream=exchange)

    def _scope(self, request: httpx2.Request) -> dict[str, Any]:
        url = request.url
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "server": (url.host, url.port),
            "client": None,
            OPERATOR_SCOPE: self._operator,
        }


class _Exchange(httpx2.AsyncByteStream):
    """One request to an app, and the body of its answer, of which one piece waits at most."""

    def __init__(self, body: Any) -> None:  # noqa: ANN401 - a stream, of one of two kinds
        self._body: AsyncIterator[bytes] | None = aiter(body)
        self._sent: asyncio.Queue[_Message | Exception] = asyncio.Queue(maxsize=1)
        self._is_over = asyncio.Event()

    def begin(self, app: Quart, scope: dict[str, Any]) -> None:
        """Let `app` answer."""
        self._task = asyncio.create_task(self._answer(app, scope))

    async def next_message(self) -> _Message:
        """The next part of the answer. Raises what the app raised."""
        message = await self._sent.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""
        has_more = True
        while has_more:
            message = await self.next_message()
            has_more = message.get("more_body", False)
            yield message.get("body", b"")

    async def cancel(self) -> None:
        """End the request midway, and wait for it: the services may be closed then."""
        self._is_over.set()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def aclose(self) -> None:
        """End the request: the app sees a client that leaves, if it has not sent everything."""
        self._is_over.set()
        await self._task

    async def _answer(self, app: Quart, scope: dict[str, Any]) -> None:
        try:
            # As an ASGI server calls it; Quart's types name the scopes of such servers.
            await app(scope, self._receive, self._sent.put)  # type: ignore[arg-type]
        except Exception as error:
            if not self._is_over.is_set():
                await self._sent.put(error)

    async def _receive(self) -> _Message:
        if self._body is not None:
            piece = await anext(self._body, None)
            if piece is None:
                self._body = None
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}
        await self._is_over.wait()
        return {"type": "http.disconnect"}
