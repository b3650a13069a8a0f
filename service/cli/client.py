"""The API as commands ask it: that of a server, or of the app over this machine's data dir."""

import json
import platform
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx2

from service.access.refusals import SignInAgain
from service.cli.logins import Credential
from service.cli.target import parse_server
from service.core.errors import Invalid, NotFound, Refusal
from service.core.exit_codes import is_of_loaded
from service.core.http_client import client_tls
from service.core.origins import is_loopback
from service.core.version import service_version

if TYPE_CHECKING:
    from service.access.callers import Operator
    from service.app.composition import Services

TIMEOUT_S: Final = 60.0
"""Longer than COUNTERSIGN_QUERY_MAX_S, after which a server cancels a query."""

CONNECT_TIMEOUT_S: Final = 10.0
UPLOAD_TIMEOUT_S: Final = 1800.0
"""For what a server does with a long file before it answers."""

_PIECE_BYTES: Final = 2**18
ANSWER_BYTES_MAX: Final = 64 * 2**20
"""Decompressed: three pages of the longest rows, or 100,000 bindings. Exports have no limit."""

_PROJECT_ID: Final = "proj_"
_OURS: Final = "req_"
"""Begins the `x-request-id` of every answer of this service."""

QueryParameters = Mapping[str, str | int | Sequence[str]]
JsonObject = dict[str, Any]
"""An answer of the API: every one is a JSON object."""

_HERE: Final = "http://localhost"
"""The origin of requests within this process; it is not shown."""

_PAGE: Final = 500
"""Entries of a page: as many as the API answers at once."""

PAGES_MAX: Final = 200
"""Of a list: a hundred thousand entries. A server could answer with pages without end."""

_QUOTED_MAX: Final = 100
_UNEXPECTED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a member that is missing, or of another type, raises."""


class ServerRefusal(Refusal):
    """The server refused a request, or none answered: then `answered_status` is None."""

    status = 502

    def __init__(
        self, text: str, *, status: int | None = None, is_temporary: bool = False, code: str = ""
    ) -> None:
        super().__init__(text)
        self.answered_status = status
        self.is_temporary = is_temporary
        self.code = code
        """The text of the server's own error."""


@contextmanager
def _network_failures(server: str) -> Iterator[None]:
    """Turn failures of the network in the block into refusals that say what to do."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _network_refusal(server, error) from error


def _network_refusal(server: str, error: httpx2.HTTPError | httpx2.InvalidURL) -> ServerRefusal:
    tls = _tls_fault(error)
    if tls is not None:
        return ServerRefusal(
            f"{server}: TLS failed: {tls}; check the address, or name your own CA's"
            " certificates in SSL_CERT_FILE"
        )
    if isinstance(error, httpx2.TimeoutException):
        text = f"{server} does not answer in time: check the address and your network"
    elif isinstance(error, httpx2.ConnectError):
        text = f"cannot reach {server} ({error}): check the address and your network"
    else:
        text = f"the connection to {server} broke off ({error}): try again"
    return ServerRefusal(text, is_temporary=True)


@contextmanager
def expected_answers(server: str) -> Iterator[None]:
    """Raise ServerRefusal if the block fails on an answer of a form that it does not know."""
    try:
        yield
    except _UNEXPECTED as error:
        if is_of_loaded(error, "analytics.model.filters", "InvalidQuery"):
            raise
        raise ServerRefusal(
            f"{server} answers in a form that this program does not know"
            f" ({type(error).__name__}: {str(error)[:_QUOTED_MAX]}): it may be of another version"
        ) from error


@contextmanager
def rephrased(rephrase: Callable[[str], str]) -> Iterator[None]:
    """Change the text of a refusal (400) of a request in the block by `rephrase`."""
    try:
        yield
    except Invalid as fault:
        raise Invalid(rephrase(fault.text)) from fault
    except ServerRefusal as refusal:
        if refusal.answered_status != httpx2.codes.BAD_REQUEST:
            raise
        raise ServerRefusal(rephrase(refusal.text), status=refusal.answered_status) from refusal


def _tls_fault(error: BaseException | None) -> str | None:
    """What TLS did not accept, or None if `error` has another cause."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return str(getattr(error, "verify_message", "") or error.reason or error)
        error = error.__cause__ or error.__context__
    return None


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


def org_path(slug: str, *parts: str) -> str:
    """The API's path below an organisation; each part is escaped."""
    return _below("/api/v1/admin/orgs", slug, *parts)


def path_of(root: str, *parts: str) -> str:
    """The API's path below `root`; each part is escaped. Raises NotFound for one of dots."""
    for part in parts:
        # Clients and servers resolve these: the request would go to what is above.
        if part in {"", ".", ".."}:
            raise NotFound(f"nothing has the id or name {part!r}")
    return "/".join([root, *(quote(part, safe="") for part in parts)])


def operator_path(slug: str | None = None, *parts: str) -> str:
    """The API's path for organisations as the operator sees them; each part is escaped."""
    root = "/api/v1/operator/orgs"
    return root if slug is None else _below(root, slug, *parts)


def install_tokens_path(slug: str) -> str:
    """The endpoint at which CI jobs of an organisation get install tokens."""
    return _below("/api/v1/orgs", slug, "install-tokens")


def _below(root: str, slug: str, *parts: str) -> str:
    if slug in {"", ".", ".."}:
        raise Invalid("the organisation must be a slug, such as acme")
    return path_of(root, slug, *parts)


def drop_none(**members: object) -> dict[str, Any]:
    """Those of `members` that are not None: parameters or a body, without what was not asked."""
    return {name: value for name, value in members.items() if value is not None}


class Client(AbstractAsyncContextManager["Client"]):
    """Requests of one command to one origin, with at most one credential. No redirect is followed.

    They raise ServerRefusal, or on a data dir the app's own errors. `is_local` is True there.
    """

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
        self.is_local = transport is not None
        self.known_org: str | None = None
        self._credential = credential
        self._sign_in_again = sign_in_again
        host = urlsplit(server).hostname or ""
        headers = {"user-agent": user_agent(), "accept": "application/json"}
        if transport is not None:
            headers["accept-encoding"] = "identity"
        self._http = httpx2.AsyncClient(
            base_url=server,
            headers=headers,
            timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # Which takes 30 ms to read, and is only for the network.
            verify=client_tls() if transport is None else True,
            transport=transport,
            # A proxy for outside hosts must not get requests to this machine.
            trust_env=not is_loopback(host),
        )

    @classmethod
    def of_data_dir(cls, services: "Services", operator: "Operator") -> Self:
        """The API of the app over the services of a data dir, with the operator's rights."""
        from service.cli.in_process import AppTransport, operator_app

        return cls(_HERE, None, transport=AppTransport(operator_app(services), operator))

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, parameters: QueryParameters | None = None) -> JsonObject:
        """The JSON answer to a GET. Raises ServerRefusal."""
        return await self._json("GET", path, params=_query(parameters))

    async def get_text(self, path: str, parameters: QueryParameters) -> str:
        """The text that a GET answers with, of a bounded size. Raises ServerRefusal."""
        text = bytearray()
        async with self.download(path, parameters) as download:
            async for chunk in download.chunks:
                text += chunk
                self._check_length(len(text))
        return text.decode()

    async def post(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """The JSON answer to a POST of `body`, bytes of JSON or an object. Raises ServerRefusal."""
        return await self._send_json("POST", path, body, headers)

    async def put(
        self, path: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> JsonObject:
        """The JSON answer to a PUT of `body`. Raises ServerRefusal."""
        return await self._send_json("PUT", path, body, headers)

    async def post_form(self, path: str, form: Mapping[str, str]) -> JsonObject:
        """The JSON answer to a POST of a form. Raises ServerRefusal."""
        return await self._json("POST", path, data=dict(form))

    async def delete(self, path: str, parameters: QueryParameters | None = None) -> JsonObject:
        """The JSON answer to a DELETE. Raises ServerRefusal."""
        return await self._json("DELETE", path, params=_query(parameters))

    async def upload(
        self,
        path: str,
        file: Path,
        media: str,
        parameters: QueryParameters,
        show: Callable[[int, int], None],
    ) -> JsonObject:
        """The JSON answer to a POST of `file`, which may take long. Raises ServerRefusal.

        `show` is given the bytes that were sent, and all of them.
        """
        size = _size(file)
        headers = {"content-type": media, "content-length": str(size)}
        timeout = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=UPLOAD_TIMEOUT_S)
        return await self._json_once(
            "POST",
            path,
            params=_query(parameters),
            content=_pieces(file, size, show),
            headers=headers,
            timeout=timeout,
        )

    @asynccontextmanager
    async def download(
        self, path: str, parameters: QueryParameters, asked: JsonObject | None = None
    ) -> AsyncIterator[OpenDownload]:
        """A file of the server, as it was sent; with `asked`, the answer to a POST of that.

        Raises ServerRefusal, also midway.
        """
        more: dict[str, Any] = {"params": _query(parameters)} if asked is None else {"json": asked}
        headers = {"accept-encoding": "identity"}
        method = "GET" if asked is None else "POST"
        request = self._request(method, path, headers=headers, **more)
        with _network_failures(self.server):
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code != httpx2.codes.OK:
                    self._check(response, await self._read(response))
                    raise self._not_ours(response)
                self._check(response, b"")
                yield _open_download(response)
            finally:
                await response.aclose()

    @property
    def at_place(self) -> str:
        """` at ` and the server, for titles; empty for the data dir."""
        return "" if self.is_local else f" at {self.server}"

    async def default_org(self) -> str | None:
        """The organisation to work on if none is named: that of the login or of the credential.

        None for the operator, who acts in all.
        """
        if not self.is_local and self.known_org is None:
            self.known_org = (await self.get("/api/v1/session"))["org"]
        return self.known_org

    async def all_pages(
        self,
        path: str,
        member: str,
        parameters: QueryParameters | None = None,
        most: float = inf,
    ) -> list[JsonObject]:
        """All entries of a list that is answered in pages; `member` names them in an answer.

        No further page is asked for once there are more than `most`. Raises ServerRefusal after
        PAGES_MAX.
        """
        entries: list[JsonObject] = []
        cursor = None
        for _ in range(PAGES_MAX):
            page = await self.get(
                path, drop_none(limit=_PAGE, cursor=cursor) | dict(parameters or {})
            )
            entries += page[member]
            cursor = page["next_cursor"]
            if cursor is None or len(entries) > most:
                return entries
        raise ServerRefusal(f"{self.server} answers with more than {PAGES_MAX} pages of {member}")

    async def part_of(self, path: str, member: str, name: str) -> str:
        """`name` as a part of a path: one with a slash, which no part can have, by its id."""
        if "/" in name:
            return await self._id_of(path, member, name) or name
        return name

    async def project_id(self, slug: str, project: str) -> str:
        """The id of `project`, which is an id or a name. Raises NotFound."""
        if project.startswith(_PROJECT_ID):
            return project
        found = await self._id_of(org_path(slug, "projects"), "projects", project)
        if found is None:
            raise NotFound(f"Project not found for this org: {project}")
        return found

    async def _id_of(self, path: str, member: str, name: str) -> str | None:
        """The id of the entry of a list with this name or address; None if there is none."""
        for entry in await self.all_pages(path, member, {"find": name}):
            if name in {entry.get("name"), entry.get("email")}:
                return str(entry["id"])
        return None

    async def _send_json(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **(headers or {})}
        return await self._json(method, path, content=content, headers=headers)

    async def _json(self, method: str, path: str, **more: Any) -> JsonObject:  # noqa: ANN401
        try:
            return await self._json_once(method, path, **more)
        except ServerRefusal as refusal:
            if refusal.code != SignInAgain.text or self._sign_in_again is None:
                raise
            sign_in, self._sign_in_again = self._sign_in_again, None
        self._credential = await sign_in()
        return await self._json_once(method, path, **more)

    async def _json_once(self, method: str, path: str, **more: Any) -> JsonObject:  # noqa: ANN401
        with _network_failures(self.server):
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
            self._check_length(len(body))
        return bytes(body)

    def _check_length(self, length: int) -> None:
        if length > ANSWER_BYTES_MAX:
            raise ServerRefusal(
                f"{self.server} answers with more than {ANSWER_BYTES_MAX // 2**20} MiB: ask for"
                " less, such as with --limit"
            )

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
            return _UNAUTHORIZED[self._credential.kind].format(server=self.server)
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


def _size(file: Path) -> int:
    return file.stat().st_size


async def _pieces(file: Path, size: int, show: Callable[[int, int], None]) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            yield piece
            show(opened.tell(), size)


def user_agent() -> str:
    """The program, its version, the system and the host name: a reminder for the member."""
    host = "".join(c for c in platform.node() if (c.isascii() and c.isalnum()) or c in "-._")
    return f"countersign-cli/{service_version()} ({platform.system()}; {host or 'unknown'})"


def _query(parameters: QueryParameters | None) -> list[tuple[str, str]]:
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
