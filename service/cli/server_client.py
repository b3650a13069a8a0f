"""HTTP to one server: its credential goes to no other, and every failure is one clear line."""

import json
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx2

from service.access.refusals import SignInAgain
from service.cli.credentials import Credential
from service.cli.server_failures import NetworkFailures, ServerRefusal
from service.cli.target import parse_server
from service.core.errors import Invalid
from service.core.origins import is_loopback
from service.core.tls import client_tls
from service.core.version import service_version

TIMEOUT_S: Final = 60.0
"""Longer than COUNTERSIGN_QUERY_MAX_S, after which a server cancels a query."""

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 * 2**20
"""Decompressed: three pages of the longest rows, or 100,000 bindings. Exports have no limit."""

_OURS: Final = "req_"
"""Begins the `x-request-id` of every answer of this service."""

Parameters = Mapping[str, str | int | Sequence[str]]
Answered = dict[str, Any]
"""Every answer of the API is a JSON object."""


@dataclass(frozen=True, slots=True)
class ExportScope:
    """Which rows an export has. `since` and `until` are the bounds that applied.

    `lost_rows` of the days in between were given up.

    Values that a server does not state are None, and so are missing bounds and floors.
    """

    rows: int
    export_id: str | None
    since: str | None
    until: str | None
    retention_floor: str | None
    lost_rows: int


@dataclass(frozen=True, slots=True)
class OpenDownload:
    """A file that a server is sending: what its headers say of it, and its bytes as they arrive."""

    scope: ExportScope
    chunks: AsyncIterator[bytes]


class ServerClient:
    """Requests to one origin, with at most one credential. Redirects are not followed."""

    def __init__(
        self,
        server: str,
        credential: Credential | None,
        sign_in_again: Callable[[], Awaitable[Credential]] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`sign_in_again` is called once if the server requires a recent sign-in.

        Without `transport` requests go over the network.
        """
        self.server = server
        self._credential = credential
        self._sign_in_again = sign_in_again
        host = urlsplit(server).hostname or ""
        self._http = httpx2.AsyncClient(
            base_url=server,
            headers=_headers(is_remote=transport is None),
            timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # Which takes 30 ms to read, and is only for the network.
            verify=client_tls() if transport is None else True,
            transport=transport,
            # A proxy for outside hosts must not get requests to this machine.
            trust_env=not is_loopback(host),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, parameters: Parameters | None = None) -> Answered:
        """The JSON answer to a GET. Raises ServerRefusal."""
        return await self._json("GET", path, params=_query(parameters))

    async def post(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """The JSON answer to a POST of `body`, bytes of JSON or an object. Raises ServerRefusal."""
        return await self._send_json("POST", path, body, headers)

    async def put(
        self, path: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Answered:
        """The JSON answer to a PUT of `body`. Raises ServerRefusal."""
        return await self._send_json("PUT", path, body, headers)

    async def post_form(self, path: str, form: Mapping[str, str]) -> Answered:
        """The JSON answer to a POST of a form. Raises ServerRefusal."""
        return await self._json("POST", path, data=dict(form))

    async def delete(self, path: str, parameters: Parameters | None = None) -> Answered:
        """The JSON answer to a DELETE. Raises ServerRefusal."""
        return await self._json("DELETE", path, params=_query(parameters))

    @asynccontextmanager
    async def download(self, path: str, parameters: Parameters) -> AsyncIterator[OpenDownload]:
        """A file of the server, as it was sent. Raises ServerRefusal, also midway."""
        request = self._request(
            "GET", path, params=_query(parameters), headers={"accept-encoding": "identity"}
        )
        with self._network_failures():
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code != httpx2.codes.OK:
                    self._check(response, await self._read(response))
                    raise self._not_ours(response)
                self._check(response, b"")
                yield _open_download(response)
            finally:
                await response.aclose()

    async def _send_json(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **(headers or {})}
        return await self._json(method, path, content=content, headers=headers)

    async def _json(self, method: str, path: str, **more: Any) -> Answered:  # noqa: ANN401
        try:
            return await self._json_once(method, path, **more)
        except ServerRefusal as refusal:
            if refusal.code != SignInAgain.text or self._sign_in_again is None:
                raise
            sign_in, self._sign_in_again = self._sign_in_again, None
        self._credential = await sign_in()
        return await self._json_once(method, path, **more)

    async def _json_once(self, method: str, path: str, **more: Any) -> Answered:  # noqa: ANN401
        with self._network_failures():
            response = await self._http.send(self._request(method, path, **more), stream=True)
            try:
                body = await self._read(response)
            finally:
                await response.aclose()
        self._check(response, body)
        try:
            answered = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._not_ours(response) from error
        if not isinstance(answered, dict):
            raise self._not_ours(response)
        return answered

    async def _read(self, response: httpx2.Response) -> bytes:
        """The body of `response`, decompressed. Raises ServerRefusal if it is too long."""
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            # Decompressed bytes are counted: a short response could fill the memory of this
            # machine.
            if len(body) > ANSWER_BYTES_MAX:
                raise ServerRefusal(
                    f"{self.server} answers with more than {ANSWER_BYTES_MAX // 2**20} MiB: ask for"
                    " less, such as with --limit",
                    status=response.status_code,
                )
        return bytes(body)

    def _request(self, method: str, path: str, **more: Any) -> httpx2.Request:  # noqa: ANN401
        credential = {} if self._credential is None else self._credential.headers
        headers = credential | more.pop("headers", {})
        return self._http.build_request(method, path, headers=headers, **more)

    def _check(self, response: httpx2.Response, body: bytes) -> None:
        """Raise ServerRefusal unless `response` is a success of a Countersign server."""
        status = response.status_code
        if response.is_redirect:
            raise ServerRefusal(
                f"{self.server} redirects to {_origin(response)}: if that is your server, run"
                f" `countersign login {_origin(response)}`",
                status=status,
            )
        if not response.headers.get("x-request-id", "").startswith(_OURS):
            raise self._not_ours(response)
        if response.is_success:
            return
        text = _error_text(response, body)
        raise ServerRefusal(
            self._explained(text, response),
            status=status,
            is_temporary=status == httpx2.codes.TOO_MANY_REQUESTS or response.is_server_error,
            code=text,
        )

    def _explained(self, text: str, response: httpx2.Response) -> str:
        """The server's error with what to do about it."""
        if response.status_code == httpx2.codes.UNAUTHORIZED and self._credential is not None:
            return f"{_UNAUTHORIZED[self._credential.kind].format(server=self.server)}"
        if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            wait = response.headers.get("retry-after", "")
            return f"{text}; try again in {wait} s" if wait.isdecimal() else text
        if response.status_code in {httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND}:
            return f"{text} (at {self.server})"
        return text

    def _not_ours(self, response: httpx2.Response) -> ServerRefusal:
        if response.is_server_error:
            return ServerRefusal(
                f"{self.server} answers {response.status_code}, but not as Countersign: the"
                " service behind it may be down; try again",
                status=response.status_code,
                is_temporary=True,
            )
        return ServerRefusal(
            f"{self.server} is not a Countersign server: check the address",
            status=response.status_code,
        )

    def _network_failures(self) -> "NetworkFailures":
        return NetworkFailures(self.server)


_UNAUTHORIZED: Final = {
    "session": "your login to {server} has expired or was ended: run `countersign login {server}`",
    "api_key": (
        "{server} does not accept this API key here: it was revoked, or was issued without --scope;"
        " sign in with `countersign login {server}`"
    ),
    "admin_token": (
        "{server} does not accept this token: get a current one, or sign in with"
        " `countersign login {server}`"
    ),
}


def _headers(*, is_remote: bool) -> dict[str, str]:
    headers = {"user-agent": user_agent(), "accept": "application/json"}
    return headers if is_remote else {**headers, "accept-encoding": "identity"}


def user_agent() -> str:
    """The program, its version, the system and the host name: a reminder for the member."""
    host = "".join(c for c in platform.node() if (c.isascii() and c.isalnum()) or c in "-._")
    return f"countersign-cli/{service_version()} ({platform.system()}; {host or 'unknown'})"


def _query(parameters: Parameters | None) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in (parameters or {}).items():
        values = [str(value)] if isinstance(value, str | int) else value
        pairs += [(name, value) for value in values]
    return pairs


def _error_text(response: httpx2.Response, body: bytes) -> str:
    try:
        text = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    return text if isinstance(text, str) else f"the server answers {response.status_code}"


def _origin(response: httpx2.Response) -> str:
    """Where a redirect leads, without path and query, which may hold a secret."""
    target = response.headers.get("location", "")
    try:
        return parse_server(f"{urlsplit(target).scheme}://{urlsplit(target).netloc}")
    except (Invalid, ValueError):
        return "another page"


def _open_download(response: httpx2.Response) -> OpenDownload:
    """The export in `response`, with what its headers say of it (docs/api.md, "Export")."""
    headers = response.headers
    since, _, until = headers.get("x-export-window", "").partition("/")
    floor = headers.get("x-retention-floor", "none")
    scope = ExportScope(
        rows=int(headers.get("x-row-count", "0")),
        export_id=headers.get("x-export-id"),
        since=_bound(since),
        until=_bound(until),
        retention_floor=None if floor == "none" else floor,
        lost_rows=int(headers.get("x-lost-rows", "0")),
    )
    return OpenDownload(scope, response.aiter_raw())


def _bound(text: str) -> str | None:
    return None if text in {"", ".."} else text
