"""Sends requests to servers that organisations name: to no private address, after no redirect.

A host is resolved once for each connection, each of its addresses must be allowed, and the
connection goes to one of them, with TLS in the name of the host.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from ssl import SSLContext
from typing import Final, Literal
from urllib.parse import urlsplit

import httpcore2

from service.core.clock import Clock
from service.core.text_rules import visible

SEND_S: Final = 30.0
"""How long a receiver may take to accept what it is sent."""
ANSWER_BYTES_MAX: Final = 64 * 1024
TEXT_CHARS_MAX: Final = 200
"""How much of an answer is shown."""
SYSLOG: Final = "syslog+tls"

_IDLE_MAX: Final = 256
_IDLE_S: Final = 30.0
_TRANSLATED: Final = tuple(map(ip_network, ("64:ff9b::/96", "2002::/16", "2001::/32")))
"""IPv6 addresses that stand for IPv4 ones, which may be private."""
_LATER: Final = frozenset({408, 425, 429})
_DENIED: Final = frozenset({401, 402, 403, 404, 405, 407, *range(300, 400)})
_GONE: Final = 410

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class AddressRefused(Exception):
    """The receiver is where the operator allows none."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has accepted it; what it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It has not, and what it answered.

    `later`: try again. `rows`: not this content. `denied`: nothing, as it is set up now. `gone`:
    never again.
    """

    kind: Literal["later", "rows", "denied", "gone"]
    text: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to send, and where. `hidden` are its secrets, which no text of an answer shows.

    `fault` reads in the body of a 2xx what the receiver has refused all the same.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    method: str = "POST"
    fault: Callable[[bytes], str | None] = lambda body: None


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Sender:
    """Sends to addresses of the internet, and of `networks` that the operator allows besides."""

    def __init__(
        self,
        networks: Iterable[str],
        tls: Callable[[], SSLContext],
        clock: Clock,
        resolve: Resolve = resolve_host,
    ) -> None:
        self._networks = [ip_network(each, strict=False) for each in networks]
        self._tls = tls
        self._clock = clock
        self._resolve = resolve
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def send(self, request: Outgoing) -> Delivered | Refused:
        """Send it; what goes wrong is a Refused."""
        try:
            async with asyncio.timeout(SEND_S):
                return await self._sent(request)
        except TimeoutError:
            return Refused("later", f"no answer within {SEND_S:g} s")
        except AddressRefused as error:
            return Refused("denied", str(error))
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, ValueError) as error:
            return Refused("later", _shown(f"{type(error).__name__}: {error}", request.hidden))

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()

    async def addresses(self, host: str, port: int, *, is_plain: bool) -> Sequence[str]:
        """Those of `host`, if all are allowed; `is_plain` is without TLS. Raises AddressRefused."""
        found = await self._resolve(host, port)
        for text in found:
            address = ip_address(text)
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            self._check(mapped or address, is_plain=is_plain)
        return found

    def _check(self, address: IPv4Address | IPv6Address, *, is_plain: bool) -> None:
        if any(address in network for network in self._networks):
            return
        if is_plain:
            raise AddressRefused("http:// is for COUNTERSIGN_STREAM_NETWORKS alone: use https://")
        is_translated = any(address in network for network in _TRANSLATED)
        if not address.is_global or address.is_multicast or is_translated:
            raise AddressRefused("its address is none of the internet's: see STREAM_NETWORKS")

    async def _sent(self, request: Outgoing) -> Delivered | Refused:
        parts = urlsplit(request.url)
        if parts.scheme == SYSLOG:
            return await self._write(parts.hostname or "", parts.port or 6514, request.body)
        async with self._pool(parts.scheme).stream(
            request.method,
            request.url,
            headers=[("user-agent", "countersign"), *request.headers.items()],
            content=request.body,
            extensions={"timeout": {"connect": SEND_S, "read": SEND_S, "write": SEND_S}},
        ) as response:
            body = bytearray()
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    break
        return self._outcome(request, response, bytes(body))

    def _outcome(
        self, request: Outgoing, response: httpcore2.Response, body: bytes
    ) -> Delivered | Refused:
        status = response.status
        text = _shown(f"{status} {body.decode(errors='replace')}", request.hidden)
        if status // 100 == 2:
            fault = request.fault(body)
            return Delivered(text) if fault is None else Refused("rows", f"{fault}: {text}")
        if status == _GONE:
            return Refused("gone", text)
        if status in _DENIED:
            return Refused("denied", text)
        if status // 100 == 4 and status not in _LATER:
            return Refused("rows", text)
        headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        return Refused("later", text, self._seconds(headers.get(b"retry-after", "")))

    def _seconds(self, retry_after: str) -> float | None:
        """What `Retry-After` says, as seconds or as a date (RFC 9110, 10.2.3)."""
        if retry_after.isascii() and retry_after.isdecimal():
            return float(retry_after[:9])
        with suppress(ValueError, TypeError):
            return max(0.0, (parsedate_to_datetime(retry_after) - self._clock()).total_seconds())
        return None

    async def _write(self, host: str, port: int, body: bytes) -> Delivered | Refused:
        """Send over a connection of its own: that it closes in order is all there is to know."""
        error: OSError = OSError("the host has no address")
        for address in await self.addresses(host, port, is_plain=False):
            try:
                _, writer = await asyncio.open_connection(
                    address, port, ssl=self._tls(), server_hostname=host
                )
            except OSError as fault:
                error = fault
                continue
            try:
                writer.write(body)
                await writer.drain()
            finally:
                writer.close()
            await writer.wait_closed()
            return Delivered(f"{len(body)} bytes written")
        raise error

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        if scheme not in self._pools:
            self._pools[scheme] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls() if scheme == "https" else None,
                # One for each stream: those of slow receivers must not be waited for.
                max_connections=None,
                max_keepalive_connections=_IDLE_MAX,
                keepalive_expiry=_IDLE_S,
                network_backend=_GuardedNetwork(self, is_plain=scheme != "https"),
            )
        return self._pools[scheme]


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses alone."""

    def __init__(self, sender: Sender, *, is_plain: bool) -> None:
        self._sender = sender
        self._is_plain = is_plain
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as it is called
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of `host` that takes one."""
        error = httpcore2.ConnectError("the host has no address")
        for address in await self._sender.addresses(host, port, is_plain=self._is_plain):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore2.ConnectError as fault:
                error = fault
        raise error


def _shown(text: str, hidden: Sequence[str]) -> str:
    """The begin of `text` without secrets: cut last, so that no part of one stays."""
    for secret in hidden:
        text = text.replace(secret, "…")
    return visible(text.strip()[:TEXT_CHARS_MAX])
