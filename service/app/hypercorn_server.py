"""hypercorn with bounded connections, heads and writes, a bounded shutdown, and HTTP/1.1 alone.

hypercorn 0.18 has no settings for these, so this module, and no other, extends its classes.
"""

import asyncio
import math
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from socket import IPPROTO_TCP, SO_LINGER, SOL_SOCKET, TCP_NOTSENT_LOWAT
from typing import Any, Final

import h11
import hypercorn.asyncio.run
import hypercorn.protocol
import structlog
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from quart import Quart

from service.core.loop_turns import CONNECTION, LoopTurns

LAST_S: Final = 1.0
"""Time that requests have to end after their connections were aborted."""

LINGER_S: Final = 5.0
LINGER_BYTES: Final = 8 * 2**20
"""How long, and how much of, a request is still read after it was answered: more than any body that
is accepted."""

PART_BYTES: Final = 64 * 1024
"""Amount that a client must read within `send_timeout_s`, or it counts as stalled."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, with a timeout of zero: closing resets the connection."""

_VERSIONS: Final = frozenset({b"1.0", b"1.1"})

_log = structlog.get_logger(__name__)


class ServerConfig(Config):
    """hypercorn's settings, this service's own, and the open connections."""

    send_timeout_s: float
    """How long a write may wait for its client to read, like nginx's `send_timeout`."""

    head_timeout_s: float = math.inf
    """How long the head of a request may take from its first byte on."""

    connections_max: int = sys.maxsize
    connections_per_address_max: int = sys.maxsize
    """Connections at once; of an address only if it is not that of a trusted proxy."""

    ends_at: float = 0.0
    """When the grace period ends, by the monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self.is_trusted_proxy: Callable[[str], bool] = lambda _: False
        self.loop_turns: LoopTurns | None = None
        self.connections: set[Connection] = set()
        self._by_address = Counter[str]()
        self._idle: dict[Connection, None] = {}
        """Connections without a request under way; the one that has been idle longest is first."""

    @property
    def graceful_timeout(self) -> float:  # type: ignore[override]
        """Rest of the grace period, for which hypercorn waits after it has closed connections."""
        return max(LAST_S, self.ends_at - time.monotonic())

    def admit(self, connection: "Connection") -> bool:
        """Count the connection; False if there are too many.

        Too many of its address, or of all, end the one of them that has been idle the longest.
        """
        address = connection.address
        is_full = len(self.connections) >= self.connections_max
        has_many = self._by_address[
            address
        ] >= self.connections_per_address_max and not self.is_trusted_proxy(address)
        if is_full or has_many:
            ended = next((it for it in self._idle if not has_many or it.address == address), None)
            if ended is None:
                _log.warning(
                    "connection_refused", source_ip=address, connections=len(self.connections)
                )
                return False
            self.release(ended)
            ended.abort()
        self.connections.add(connection)
        self._by_address[address] += 1
        self._idle[connection] = None
        return True

    def release(self, connection: "Connection") -> None:
        """Count it no longer. Safe to repeat."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
            self._idle.pop(connection, None)

    def set_idle(self, connection: "Connection", *, is_idle: bool) -> None:
        """Note whether a request is under way on it."""
        if connection in self.connections:
            self._idle.pop(connection, None)
            if is_idle:
                self._idle[connection] = None


class Connection(TCPServer):
    """A connection that is aborted when its client stops reading.

    hypercorn waits for such a client indefinitely, even while it shuts down.
    """

    config: ServerConfig
    address = ""
    """The client's address; empty if it had disconnected before it was served."""

    _head_timer: asyncio.TimerHandle | None = None
    _unread_bytes: int | None = None
    """Read of a request since it was answered; None while there is no such request."""

    async def run(self) -> None:
        """Serve the connection until it is closed."""
        # Once: of a connection that was reset it cannot be asked any more.
        with suppress(OSError, ValueError):
            self.address = str((self.writer.get_extra_info("peername") or [""])[0])
        # The kernel then asks for more when this much is unsent, not a third of a buffer of
        # megabytes, so that a slow client's progress is noticed.
        self._set_option(IPPROTO_TCP, TCP_NOTSENT_LOWAT, PART_BYTES)
        if not self.config.admit(self):
            self.abort()
            return
        try:
            await super().run()
        finally:
            self._end_head()
            self._hold_turns(is_held=False)
            self.config.release(self)

    async def protocol_send(self, event: ConnectionEvent) -> None:
        """Write with a time limit, close, or note what becomes of a request."""
        if isinstance(event, RawData):
            await self._write(event.data)
            return
        if isinstance(event, HeadBegun):
            self._begin_head()
            return
        if isinstance(event, Unread):
            self._count_unread(event.size)
            return
        if isinstance(event, Closed) and self._unread_bytes is not None:
            self._linger()
            return
        if isinstance(event, Updated):
            self._end_head()
            self.config.set_idle(self, is_idle=event.idle)
            if event.idle:
                self._hold_turns(is_held=False)
        await super().protocol_send(event)

    def _begin_head(self) -> None:
        # Not again for each piece: a client could send one byte a minute.
        if self._head_timer is None and self.config.head_timeout_s < math.inf:
            self._head_timer = self.loop.call_later(self.config.head_timeout_s, self._abort_if_open)
            self._hold_turns(is_held=True)

    def _hold_turns(self, *, is_held: bool) -> None:
        """Let heavy requests wait, from the first byte of a request to the last of its answer."""
        if self.config.loop_turns is None:
            return
        if is_held:
            self.config.loop_turns.hold(self)
            CONNECTION.set(self)  # the request's task inherits it
        else:
            self.config.loop_turns.release(self)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _count_unread(self, size: int) -> None:
        self._unread_bytes = (self._unread_bytes or 0) + size
        if self._unread_bytes > LINGER_BYTES:
            self._end_lingering()

    def _linger(self) -> None:
        """End the answer, and read on until the client closes (RFC 9112, 9.6).

        To close while it sends resets the connection: the client, or a proxy, loses the answer.
        """
        self._end_head()
        self._hold_turns(is_held=False)
        self.config.set_idle(self, is_idle=True)  # the first to end if there are too many
        with suppress(OSError, RuntimeError):  # the client is gone
            self.writer.write_eof()
        self.loop.call_later(LINGER_S, self._end_lingering)

    def _end_lingering(self) -> None:
        if self in self.config.connections:
            self.writer.close()
            self.loop.call_later(self.config.send_timeout_s, self._abort_if_open)

    async def _write(self, data: bytes) -> None:
        """Write in parts: the time limit is for a lack of progress, not for the whole write."""
        try:
            async with self.send_lock:
                for part in _parts(data):
                    self.writer.write(part)
                    # Less than that the buffer takes at once, and a time limit costs 3 µs.
                    if self.writer.transport.get_write_buffer_size() > PART_BYTES:
                        async with asyncio.timeout(self.config.send_timeout_s):
                            await self.writer.drain()
        except TimeoutError:
            self.abort()
            await self.protocol.handle(Closed())
        except (OSError, RuntimeError):  # the client is gone
            await self.protocol.handle(Closed())

    def abort(self) -> None:
        """Reset the connection; unsent data is dropped."""
        # Without this the kernel keeps unsent data and retransmits it to the client for minutes.
        self._set_option(SOL_SOCKET, SO_LINGER, _RESET)
        self.writer.transport.abort()

    def _set_option(self, level: int, option: int, value: int | bytes) -> None:
        # After the client has disconnected uvloop has no socket, or one without a descriptor.
        with suppress(OSError, AttributeError, ValueError):
            self.writer.get_extra_info("socket").setsockopt(level, option, value)

    async def _initiate_server_close(self) -> None:
        await super()._initiate_server_close()
        # The connection is closed only after the client has read what is left in the buffer.
        self.loop.call_later(self.config.send_timeout_s, self._abort_if_open)

    def _abort_if_open(self) -> None:
        if self in self.config.connections:
            self.abort()

    async def _close(self) -> None:
        # Closing waits until written data is sent.
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.send_timeout_s) as limit:
                await super()._close()
        if limit.expired():
            self.abort()


class HeadBegun(ConnectionEvent):
    """The first bytes of a request have arrived."""


@dataclass(frozen=True, slots=True)
class Unread(ConnectionEvent):
    """Bytes of a request that is answered already, which are dropped."""

    size: int = 0


class Http1(H11Protocol):
    """HTTP/1.1 and nothing else.

    Only a reverse proxy could know that a server speaks HTTP/2 without TLS, and it gains nothing
    from it. One connection of it can occupy the event loop for seconds with frames that make no
    request (resets, pings, settings).
    """

    _is_answered = False
    """The connection ends with this request, of which there may be more to read."""

    async def handle(self, event: ConnectionEvent) -> None:
        """Handle bytes, or the end of the connection."""
        if isinstance(event, RawData) and self._is_answered:
            await self.send(Unread(len(event.data)))
            return
        if isinstance(event, RawData) and event.data and self.stream is None:
            await self.send(HeadBegun())
        await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of the answer, or end it."""
        if isinstance(event, StreamClosed) and self.connection.their_state is h11.SEND_BODY:
            await self._begin_dropping()
        await super().stream_send(event)

    async def _send_error_response(self, status_code: int) -> None:
        await super()._send_error_response(status_code)
        await self._begin_dropping()

    async def _begin_dropping(self) -> None:
        self._is_answered = True
        await self.send(Unread())

    async def _check_protocol(self, event: Any) -> None:  # noqa: ANN401 - an h11 Request
        """Ignore `Upgrade: h2c`, which RFC 9113 has removed."""

    async def _create_stream(self, request: Any) -> None:  # noqa: ANN401 - an h11 Request
        if request.http_version in _VERSIONS:
            await super()._create_stream(request)
        else:
            await self._send_error_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            await self.send(Closed())


def _parts(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))


async def serve(
    app: Quart, config: ServerConfig, stop: Callable[[], Awaitable[None]], grace_s: float
) -> None:
    """Serve `app` until `stop()` returns, then let requests under way finish for `grace_s`.

    In that time no connection is accepted; at its end open connections are aborted.
    """
    hypercorn.asyncio.run.TCPServer = Connection  # type: ignore[attr-defined]
    hypercorn.protocol.H11Protocol = Http1  # type: ignore[attr-defined]
    ending: set[asyncio.Task[None]] = set()

    async def abort_after_grace() -> None:
        await asyncio.sleep(grace_s)
        # uvloop waits for open connections before hypercorn's own wait begins.
        for connection in list(config.connections):
            connection.abort()

    async def stopped() -> None:
        await stop()
        config.ends_at = time.monotonic() + grace_s
        ending.add(asyncio.create_task(abort_after_grace()))

    await hypercorn.asyncio.serve(app, config, shutdown_trigger=stopped)
    for task in ending:
        task.cancel()
