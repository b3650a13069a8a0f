"""Asks a package registry for documents and files; the proxy's only module that uses the network.

The registry is not trusted: each answer is bounded in bytes, in time and in time without progress,
and no page or redirect of it can direct a request, or our credentials, to an origin that is not
configured. A registry that does not answer is spared for a while, see `circuit_breaker`; each of
its origins on its own, as files often come from another host than documents.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn
from urllib.parse import unquote

import httpx2
import structlog

from service.core.clock import Clock, utc_now
from service.core.http_client import outgoing_client
from service.core.origins import Registry, WebOrigin
from service.packages.proxy.admission import AdmissionQueue, Holder, Permit, RequestRates
from service.packages.proxy.answers import (
    BodyFault,
    FileStream,
    RegistryDocument,
    UpstreamHealth,
    UpstreamLimits,
    Validators,
    read_body,
)
from service.packages.proxy.circuit_breaker import (
    WORST_FIRST,
    CircuitBreaker,
    CircuitState,
    OriginAttempt,
)
from service.packages.refusals import (
    TOO_MANY_REGISTRY_REQUESTS,
    RegistryLimited,
    RegistryUnavailable,
    UpstreamFailed,
    UpstreamMissing,
)

REDIRECTS_MAX: Final = 5
TRIALS_MAX: Final = 4
"""Requests to a suspect registry at once beyond which no further one tries whether it answers."""

PAUSE_S: Final = 5
PAUSE_MAX_S: Final = 60
"""How long a registry that answers 429 is spared: by default, and at most if it says how long."""

_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_VALIDATOR: Final = re.compile(r"[ -~]{1,1024}")
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_OWN_PORTS: Final = {"http": 80, "https": 443}
_MISSING: Final = frozenset({httpx2.codes.NOT_FOUND, httpx2.codes.GONE})
_TOO_MANY: Final = httpx2.codes.TOO_MANY_REQUESTS
_AGENT: Final = "countersign-proxy"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """A file that may be requested now; `release` gives up the right to.

    `org` is whose request it is.
    """

    _open_stream: Callable[[], AbstractAsyncContextManager[FileStream]]
    _permit: Permit
    org: str

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator[FileStream, None]:
        """The file, see `Upstream.file`; the permit is released at the end."""
        with self._permit:
            async with self._open_stream() as stream:
                yield stream

    def release(self) -> None:
        """Give the permit to the next request. Safe to repeat."""
        self._permit.release()


class Upstream:
    """One configured registry.

    Every method may raise UpstreamMissing and UpstreamFailed, which it has logged. A request needs
    a permit, from one of the methods `admit`, `try_admit` and `admit_file`.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        registry: Registry,
        limits: UpstreamLimits | None = None,
        *,
        clock: Clock = utc_now,
        observe: Callable[[float], None] = lambda _: None,
        admission: AdmissionQueue | None = None,
        rates: RequestRates | None = None,
        timer: Callable[[], float] = time.monotonic,
        observe_circuit: Callable[[str, bool], None] = lambda _origin, _is_open: None,
    ) -> None:
        """`limits` hold for requests that begin from now on, and may be replaced.

        `observe` gets the seconds until each response began, for metrics. `observe_circuit` gets
        an origin and whether it is spared now.
        """
        self.registry = registry
        self.health = UpstreamHealth()
        self.limits = limits or UpstreamLimits()
        self.admission = admission or AdmissionQueue()
        self._rates = rates or RequestRates()
        self.circuits: Mapping[WebOrigin, CircuitBreaker] = {
            origin: CircuitBreaker(
                str(origin), timer, partial(self._circuit_changed, origin, observe_circuit)
            )
            for origin in sorted({registry.origin, *registry.file_origins}, key=str)
        }
        """Of the registry's own origin, and of those that its files come from."""

        self._clock = clock
        self._observe = observe
        self._http = http

    @property
    def state(self) -> CircuitState:
        """The state of the origin that is worst off."""
        states = {circuit.state for circuit in self.circuits.values()}
        return next(state for state in WORST_FIRST if state in states)

    @property
    def is_suspect(self) -> bool:
        """True if documents should not be waited for where there is a copy."""
        return self.circuits[self.registry.origin].is_suspect

    async def admit(self, org: str) -> Permit:
        """A permit for one request of the organisation; waits for it, and gives up if cancelled.

        Raises RegistryUnavailable and ProxyBusy, also with status 429: see RequestRates.
        """
        return await self._admit(self.registry.origin, org)

    def try_admit(self, org: str) -> Permit | None:
        """A permit for a request that tries whether the registry answers; None if enough do."""
        origin = self.registry.origin
        key = self._admission_key(origin)
        if not self.circuits[origin].allows_requests or self.admission.held(key) >= TRIALS_MAX:
            return None
        holder = Holder(org, key)
        with suppress(RegistryLimited, TOO_MANY_REGISTRY_REQUESTS):
            self._rates.charge(holder)
            return self.admission.try_enter(holder)
        return None

    async def admit_file(self, url: str, org: str) -> AdmittedFile:
        """The file at `url` once it may be requested; raises as `admit`."""
        address = self._checked(_parse(url))
        permit = await self._admit(_origin(address) or self.registry.origin, org)
        return AdmittedFile(partial(self.file, url), permit, org)

    async def _admit(self, origin: WebOrigin, org: str) -> Permit:
        # Asked before the wait, and again by the request itself.
        if not self.circuits[origin].allows_requests:
            raise _unavailable(origin)
        holder = Holder(org, self._admission_key(origin))
        self._rates.charge(holder)
        return await self.admission.enter(holder)

    def _admission_key(self, origin: WebOrigin) -> str:
        return f"{self.registry.identity} {origin}"

    def _circuit_changed(
        self, origin: WebOrigin, observe: Callable[[str, bool], None], is_open: bool
    ) -> None:
        observe(str(origin), is_open)
        if is_open:
            self.admission.refuse(self._admission_key(origin), partial(_unavailable, origin))

    async def document(
        self, path: str, accept: str, known: Validators | None = None
    ) -> RegistryDocument | None:
        """The document at the relative `path`, or a document's URL; None if it is still `known`."""
        conditions = known.conditions if known is not None else {}
        headers = {"accept": accept, "accept-encoding": "gzip", **conditions}
        url = self._checked(_parse(path)) if "://" in path else self._address(path)
        async with self._faults(url, self.limits.document_s), self._get(url, headers) as response:
            # Only as the answer to conditions: otherwise there is nothing that it could confirm.
            if response.status_code == httpx2.codes.NOT_MODIFIED and conditions:
                return None
            return await self._document(response)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> RegistryDocument:
        """The answer to a query with `body`. Redirects are not followed."""
        url = self._address(path)
        time_max_s = self.limits.query_s if self.is_suspect else self.limits.document_s
        async with (
            self._faults(url, time_max_s),
            self._send("POST", url, {**headers, "accept-encoding": "gzip"}, body) as response,
        ):
            return await self._document(response)

    @asynccontextmanager
    async def file(self, url: str) -> AsyncGenerator[FileStream, None]:
        """The file at `url`, which a document names; open for as long as the block lasts.

        Its pieces raise UpstreamFailed beyond a limit, or if the connection breaks.
        """
        address = self._checked(_parse(url))
        headers = {"accept": "*/*", "accept-encoding": "identity"}
        async with (
            self._faults(address, self.limits.file_s) as attempt,
            self._get(address, headers) as response,
        ):
            _check_status(response)
            # From here on the file may take half an hour, which tells nothing of other requests.
            attempt.succeed()
            length = _length(response)
            if length is not None and length > self.limits.file_bytes:
                _fail(address, f"the file is longer than {self.limits.file_bytes} bytes")
            # The bytes as sent, not decoded: the digest is of these bytes, and some registries
            # label a .tar.gz as a tar with a content coding.
            bounded = _bounded(response.aiter_raw(), self.limits, address)
            async with aclosing(bounded) as pieces:
                yield FileStream(length, pieces)

    async def _document(self, response: httpx2.Response) -> RegistryDocument:
        _check_status(response)
        bytes_max = self.limits.document_bytes
        if (_length(response) or 0) > bytes_max:
            _fail(response.url, f"the document is longer than {bytes_max} bytes")
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        try:
            pieces = await read_body(response.aiter_raw(), coding, bytes_max)
        except BodyFault as error:
            _fail(response.url, f"the document {error}")
        return RegistryDocument(
            url=str(response.url),
            content_type=response.headers.get("content-type", ""),
            pieces=pieces,
            validators=Validators(
                _validator(response, "etag"), _validator(response, "last-modified")
            ),
        )

    @asynccontextmanager
    async def _get(
        self, url: httpx2.URL, headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """The response to a GET of `url`, after redirects, with any status."""
        for _ in range(REDIRECTS_MAX + 1):
            async with self._try_twice(url, headers) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                # Checked each time: one redirect could lead to an internal address.
                location = _parse(response.headers["location"], response.url)
                url = self._checked(location)
        _fail(url, f"redirected more than {REDIRECTS_MAX} times")

    @asynccontextmanager
    async def _try_twice(
        self, url: httpx2.URL, headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """The response to a GET, which is sent again if the connection broke before a response.

        A server may close an idle connection at any time, even as we begin to use it.
        """
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(self._send("GET", url, headers))
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                response = await stack.enter_async_context(self._send("GET", url, headers))
            yield response

    @asynccontextmanager
    async def _send(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response, None]:
        own = {"user-agent": _AGENT}
        # Never to another origin, such as that of a redirect: it would learn the registry's
        # password.
        if self.registry.authorization is not None and _origin(url) == self.registry.origin:
            own["authorization"] = self.registry.authorization
        limits = self.limits
        timeout = httpx2.Timeout(limits.progress_s, connect=limits.connect_s)
        begun_at = time.monotonic()
        async with self._http.stream(
            method,
            url,
            headers={**headers, **own},
            content=body,
            follow_redirects=False,
            timeout=timeout,
        ) as response:
            self._observe(time.monotonic() - begun_at)
            yield response

    def _address(self, path: str) -> httpx2.URL:
        """The URL of `path` below the registry's own. Raises UpstreamMissing for any other."""
        # Unquoted, as a server may do: `%2e%2e%2f` must not leave the registry's path either.
        segments = unquote(path).replace("\\", "/").split("/")
        if not _PATH.fullmatch(path) or path.startswith("/") or {".", ".."} & set(segments):
            raise UpstreamMissing
        return httpx2.URL(self.registry.url + path)

    def _checked(self, url: httpx2.URL) -> httpx2.URL:
        """`url` if its origin is configured; raises UpstreamFailed."""
        if url.userinfo:
            _fail(url, "the registry names a URL with credentials")
        origin = _origin(url)
        if origin is None or not self.registry.allows(origin):
            _fail(url, "the registry names an origin that is not among its FILE_ORIGINS")
        return url

    @asynccontextmanager
    async def _faults(
        self, url: httpx2.URL, time_max_s: float
    ) -> AsyncGenerator[OriginAttempt, None]:
        """Turn network failures inside the block into UpstreamFailed, and note what became of it.

        Raises RegistryUnavailable if the registry is not to be asked now.
        """
        origin = _origin(url) or self.registry.origin
        attempt = self.circuits[origin].begin()
        if attempt is None:
            raise _unavailable(origin)
        with attempt:
            try:
                async with _network_faults(url, time_max_s):
                    yield attempt
            except UpstreamFailed as failed:
                self.record_failure(failed.reason)
                if isinstance(failed, RegistryLimited):
                    self._rates.pause_heaviest(self._admission_key(origin), failed.retry_after_s)
                if failed.is_outage:
                    attempt.fail()
                else:
                    attempt.succeed()
                raise
            except UpstreamMissing:
                self.health.answered_at = self._clock()
                attempt.succeed()
                raise
            self.health.answered_at = self._clock()
            attempt.succeed()

    def record_failure(self, reason: str) -> None:
        """Show operators that the registry failed, in a request or in what it sent."""
        self.health.failed_at, self.health.failure = self._clock(), reason


@asynccontextmanager
async def _network_faults(url: httpx2.URL, time_max_s: float) -> AsyncGenerator[None, None]:
    # An overall limit: a slow server could stay below the timeout of each single read.
    try:
        async with asyncio.timeout(time_max_s) as limit:
            yield
    except TimeoutError as error:
        # A TimeoutError of the block's own code is not the registry's failure.
        if not limit.expired():
            raise
        _fail(url, f"not all there within {time_max_s:g} s", error, is_outage=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        # Only this error's text is shown: that of others may repeat what the registry sent.
        detail = f": {error}" if isinstance(error, httpx2.ConnectError) else ""
        _fail(url, f"{type(error).__name__}{detail}", error, is_outage=True)


def upstream_client(
    connections: int, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """The client for registries, with its own connections: sign-ins must not wait for files.

    There is one for each permit of the `AdmissionQueue`, so that none is waited for here.
    """
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=16)
    return outgoing_client(transport, limits)


def _parse(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        return httpx2.URL(url) if base is None else base.join(url)
    except httpx2.InvalidURL as error:
        reason = "the registry names a URL that is none"
        _log.warning("upstream_failed", reason=reason)
        raise UpstreamFailed(reason) from error


def _origin(url: httpx2.URL) -> WebOrigin | None:
    """The origin of `url`; None if its scheme is not one of HTTP."""
    if url.scheme not in _OWN_PORTS or not url.host:
        return None
    return WebOrigin(url.scheme, url.raw_host.decode("ascii"), url.port or _OWN_PORTS[url.scheme])


def _fail(
    url: httpx2.URL, reason: str, cause: Exception | None = None, *, is_outage: bool = False
) -> NoReturn:
    """Log and raise UpstreamFailed."""
    raise UpstreamFailed(_logged(url, reason), is_outage=is_outage) from cause


def _logged(url: httpx2.URL, reason: str) -> str:
    """`reason` with the origin, logged; without the query of `url`, which may hold a signature."""
    _log.warning("upstream_failed", origin=str(_origin(url)), path=url.path, reason=reason)
    return f"{_origin(url)}: {reason}"


def _unavailable(origin: WebOrigin) -> RegistryUnavailable:
    return RegistryUnavailable(f"{origin} is not asked for a while: it did not answer before")


def _check_status(response: httpx2.Response) -> None:
    status = response.status_code
    if status in _MISSING:
        raise UpstreamMissing
    if status == _TOO_MANY:
        # Not an outage: it answers, and refuses only some of our organisations' requests.
        reason = _logged(response.url, f"answered {status}")
        raise RegistryLimited(reason, _retry_after_s(response))
    if status != httpx2.codes.OK:
        # Others, such as 403 for one package, are answers of a registry that is well.
        _fail(response.url, f"answered {status}", is_outage=response.is_server_error)


def _retry_after_s(response: httpx2.Response) -> int:
    """For how long the registry wants no requests, within our limits; a date counts as unknown."""
    text = response.headers.get("retry-after", "")
    return min(max(int(text), 1), PAUSE_MAX_S) if _SECONDS.fullmatch(text) else PAUSE_S


def _length(response: httpx2.Response) -> int | None:
    """The body's length as sent, if the response states it in a way that the client enforces."""
    text = response.headers.get("content-length", "")
    if "transfer-encoding" in response.headers or not text.isdecimal():
        return None
    return int(text)


def _validator(response: httpx2.Response, name: str) -> str | None:
    value: str = response.headers.get(name, "")
    return value if _VALIDATOR.fullmatch(value) else None


async def _bounded(
    pieces: AsyncIterator[bytes], limits: UpstreamLimits, url: httpx2.URL
) -> AsyncGenerator[bytes, None]:
    size = recent = 0
    since = time.monotonic()
    async for piece in pieces:
        size += len(piece)
        recent += len(piece)
        if size > limits.file_bytes:
            _fail(url, f"the file is longer than {limits.file_bytes} bytes")
        if time.monotonic() - since >= limits.slow_s:
            if recent < limits.slow_bytes:
                _fail(url, f"fewer than {limits.slow_bytes} bytes in {limits.slow_s:g} s")
            recent, since = 0, time.monotonic()
        yield piece
