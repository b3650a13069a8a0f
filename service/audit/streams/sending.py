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
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from smtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPNotSupportedError,
    SMTPRecipientsRefused,
)
from ssl import SSLContext
from typing import Final, Literal, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import httpcore2

from service.core.clock import Clock
from service.core.text_rules import visible
from service.core.threads import in_thread, new_pool

SEND_S: Final = 30.0
"""How long a receiver may take to accept what it is sent."""
ANSWER_BYTES_MAX: Final = 64 * 1024
TEXT_CHARS_MAX: Final = 200
"""How much of an answer is shown."""
SYSLOG: Final = "syslog+tls"
RELP: Final = ("relp+tls", "relp")
MAIL: Final = "mailto"

_MAILS_AT_ONCE: Final = 4
_UNICAST: Final = ip_network("2000::/3")
"""All IPv6 addresses of the internet; those outside stand for IPv4 ones, or are local."""
_TRANSLATED: Final = tuple(map(ip_network, ("2002::/16", "2001::/32")))
"""IPv6 addresses that stand for IPv4 ones, which may be private."""

RefusalKind = Literal["later", "rows", "denied", "gone"]
_BY_STATUS: Final[dict[int, RefusalKind]] = {
    **dict.fromkeys((408, 425, 429), "later"),
    **dict.fromkeys((401, 402, 403, 404, 405, 407), "denied"),
    410: "gone",
}
_BY_CLASS: Final[dict[int, RefusalKind]] = {3: "denied", 4: "rows"}
_ACCEPTS: Final = 2
_PERMANENT: Final = 5

_FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError)
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_Connection = TypeVar("_Connection")


_LOOKUPS: Final = new_pool(64, "lookup")
"""Threads of their own: names that are not answered for must not keep other work waiting."""


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

    kind: RefusalKind
    text: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to send, and where. `hidden` are its secrets, which no text of an answer shows.

    `fault` reads in the body of a 2xx what the receiver has refused all the same. RELP has
    `messages` in place of a body.
    """

    url: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    method: str = "POST"
    messages: Sequence[bytes] = ()
    fault: Callable[[bytes], str | None] = lambda body: None


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of `host`. Raises OSError."""
    lookup = partial(socket.getaddrinfo, type=socket.SOCK_STREAM)
    found = await in_thread(lookup, host, port, pool=_LOOKUPS)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Sender:
    """Sends to addresses of the internet, and of `networks` that the operator allows besides."""

    def __init__(
        self,
        networks: Iterable[str],
        tls: Callable[[], SSLContext],
        clock: Clock,
        resolve: Resolve = resolve_host,
        smtp_url: str = "",
    ) -> None:
        """Mail goes to the operator's server at `smtp_url`, wherever that is."""
        self._smtp_url = smtp_url
        self._networks = [ip_network(each, strict=False) for each in networks]
        self._tls = tls
        self._clock = clock
        self._resolve = resolve
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}
        # Apart from the event loop's threads, all of which a server that hangs would take.
        self._mail_threads = new_pool(_MAILS_AT_ONCE, "mail")

    async def send(self, request: Outgoing) -> Delivered | Refused:
        """Send it; what goes wrong is a Refused."""
        try:
            async with asyncio.timeout(SEND_S):
                return await self._sent(request)
        except TimeoutError:
            return Refused("later", f"no answer within {SEND_S:g} s")
        except AddressRefused as error:
            return Refused("denied", str(error))
        except RelpRefused as error:
            return Refused("rows", _shown(str(error), request.hidden))
        except (*_FAULTS, OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            return Refused("later", _shown(f"{type(error).__name__}: {error}", request.hidden))

    async def close(self) -> None:
        """Close all connections."""
        self._mail_threads.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools.values():
            await pool.aclose()

    async def connect(
        self, host: str, port: int, to: Callable[[str], Awaitable[_Connection]], *, is_plain: bool
    ) -> _Connection:
        """A connection `to` the first address of `host` that takes one, if all are allowed.

        `is_plain` is one without TLS. Raises AddressRefused, OSError, httpcore2.NetworkError.
        """
        error: Exception = OSError("the host has no address")
        found = await self._resolve(host, port)
        for address in found:
            self._check(address, is_plain=is_plain)
        for address in found:
            try:
                return await to(address)
            except (OSError, httpcore2.NetworkError) as fault:
                error = fault
        raise error

    def _check(self, text: str, *, is_plain: bool) -> None:
        address = ip_address(text)
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        if any(address in network for network in self._networks):
            return
        if is_plain:
            raise AddressRefused("only COUNTERSIGN_STREAM_NETWORKS are sent to without TLS")
        is_other = any(address in network for network in _TRANSLATED) or (
            isinstance(address, IPv6Address) and address not in _UNICAST
        )
        if not address.is_global or address.is_multicast or is_other:
            raise AddressRefused("its address is not in the internet or STREAM_NETWORKS")

    async def _sent(self, request: Outgoing) -> Delivered | Refused:
        parts = urlsplit(request.url)
        if parts.scheme == MAIL:
            pool = self._mail_threads
            return await in_thread(self._mail, parts.path, request.body, pool=pool)
        if parts.scheme == SYSLOG:
            return await self._write(parts, 6514, request.body)
        if parts.scheme in RELP:
            return await self._write(parts, 2514, request.messages)
        headers = [("user-agent", "countersign"), *request.headers.items()]
        body = bytearray()
        async with self._pool(parts.scheme).stream(
            request.method, request.url, headers=headers, content=request.body
        ) as response:
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    break
        status = response.status
        text = _shown(f"{status} {body.decode(errors='replace')}", request.hidden)
        if status // 100 == _ACCEPTS:
            fault = request.fault(bytes(body))
            return Delivered(text) if fault is None else Refused("rows", f"{fault}: {text}")
        kind = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, "later")
        fields = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        return Refused(kind, text, self._seconds(fields.get(b"retry-after", "")))

    def _seconds(self, retry_after: str) -> float | None:
        """What `Retry-After` says, as seconds or as a date (RFC 9110, 10.2.3)."""
        if retry_after.isascii() and retry_after.isdecimal():
            return float(retry_after[:9])
        with suppress(ValueError, TypeError):
            return max(0.0, (parsedate_to_datetime(retry_after) - self._clock()).total_seconds())
        return None

    async def _write(self, to: SplitResult, port: int, sent: bytes | Sequence[bytes]) -> Delivered:
        """Send over a connection of its own.

        Messages are acknowledged; of bytes it is known only that the connection closed in order.
        """
        host, port, is_plain = to.hostname or "", to.port or port, to.scheme == "relp"
        tls, name = (None, None) if is_plain else (self._tls(), host)
        connect = partial(asyncio.open_connection, port=port, ssl=tls, server_hostname=name)
        reader, writer = await self.connect(host, port, connect, is_plain=is_plain)
        try:
            if isinstance(sent, bytes):
                writer.write(sent)
            else:
                await send_messages(reader, writer, sent)
            await writer.drain()
        finally:
            writer.close()
        if not isinstance(sent, bytes):
            # Over TLS, rsyslog's answer to `close` comes after the end of ours, which is an error.
            return Delivered(f"{len(sent)} messages acknowledged")
        await writer.wait_closed()
        return Delivered(f"{len(sent)} bytes written")

    def _mail(self, to: str, message: bytes) -> Delivered | Refused:
        """Hand a message to the server, over TLS alone."""
        server = urlsplit(self._smtp_url)
        if not server.hostname:
            return Refused("denied", "this server sends no mail: see COUNTERSIGN_SMTP_URL")
        user, password = unquote(server.username or ""), unquote(server.password or "")
        try:
            with SMTP(server.hostname, server.port or 587, timeout=SEND_S) as smtp:
                smtp.starttls(context=self._tls())
                if user:
                    smtp.login(user, password)
                smtp.sendmail(parse_qs(server.query)["from"][0], [to], message)
        except SMTPException as error:
            text = _shown(f"{type(error).__name__}: {error}", [*filter(None, (password,))])
            return Refused(_mail_refusal(error), text)
        return Delivered("250 accepted by the mail server")

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        if scheme not in self._pools:
            self._pools[scheme] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls() if scheme == "https" else None,
                # One for each stream: those of slow receivers must not be waited for.
                max_connections=None,
                keepalive_expiry=SEND_S,
                network_backend=_CheckedNetwork(self, is_plain=scheme != "https"),
            )
        return self._pools[scheme]


class _CheckedNetwork(httpcore2.AnyIOBackend):
    """Connects to allowed addresses alone."""

    def __init__(self, sender: Sender, *, is_plain: bool) -> None:
        self._sender = sender
        self._is_plain = is_plain

    async def connect_tcp(
        self, host: str, port: int, *_: object, **__: object
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to one of the host's addresses."""
        connect = super().connect_tcp
        return await self._sender.connect(
            host, port, lambda to: connect(to, port), is_plain=self._is_plain
        )


def _mail_refusal(error: SMTPException) -> RefusalKind:
    if isinstance(error, SMTPAuthenticationError | SMTPNotSupportedError):
        return "denied"
    codes = [getattr(error, "smtp_code", 0)]
    if isinstance(error, SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
    if any(code // 100 != _PERMANENT for code in codes):
        return "later"
    return "rows" if isinstance(error, SMTPDataError) else "denied"


def _shown(text: str, hidden: Sequence[str]) -> str:
    """The begin of `text` without secrets: cut last, so that no part of one stays."""
    for secret in hidden:
        text = text.replace(secret, "…")
    return visible(text.strip()[:TEXT_CHARS_MAX])


_OFFER: Final = b"relp_version=0\nrelp_software=countersign\ncommands=syslog"


class RelpRefused(Exception):
    """The receiver has refused a message; what it answered."""


async def send_messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: Sequence[bytes]
) -> None:
    """Send messages by RELP, in a session of their own, which ends once all are acknowledged.

    It is the Reliable Event Logging Protocol of rsyslog, which acknowledges each message:
    https://github.com/rsyslog/librelp/blob/master/doc/relp.html

    Raises RelpRefused, OSError (also if the receiver takes no session), EOFError, and ValueError
    for an answer that is none of RELP.
    """
    writer.write(_frame(1, b"open", _OFFER))
    try:
        await _confirmed(reader)
    except RelpRefused as error:
        raise ConnectionRefusedError(str(error).strip()) from error
    writer.writelines([_frame(n, b"syslog", each) for n, each in enumerate(messages, 2)])
    for _ in messages:
        await _confirmed(reader)
    writer.write(_frame(len(messages) + 2, b"close"))


def _frame(number: int, command: bytes, content: bytes = b"") -> bytes:
    before = b" " if content else b""
    return b"%d %s %d%s%s\n" % (number, command, len(content), before, content)


async def _confirmed(reader: asyncio.StreamReader) -> None:
    """Wait for the next answer: `NUMBER rsp LENGTH 200 …`."""
    fields = [await reader.readuntil(b" ") for _ in range(3)]
    length = fields[2].strip()
    if fields[1] != b"rsp " or not length.isdigit() or int(length) > ANSWER_BYTES_MAX:
        raise ValueError(f"no answer of RELP: {b''.join(fields)!r}")
    answer = await reader.readexactly(int(length) + 1)  # and a line feed
    if not answer.startswith(b"200"):
        raise RelpRefused(answer.decode(errors="replace"))
