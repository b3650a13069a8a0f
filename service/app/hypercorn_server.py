"""hypercorn's HTTP/1.1 and ASGI behind connections of the service's own.

hypercorn 0.18 has no settings that bound connections, heads, writes and the shutdown, and none
that turns HTTP/2 without TLS off. So this module accepts connections itself.
"""

import asyncio
import math
import struct
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from socket import IPPROTO_TCP, SO_LINGER, SOL_SOCKET, TCP_NOTSENT_LOWAT
from typing import Any, Final, cast

import h11
import structlog
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Response, StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import AppWrapper, ASGIFramework, ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr, wrap_app
from quart import Quart

from service.core.loop_turns import CONNECTION, LoopTurns

LAST_S: Final = 1.0
"""Time that requests have to end after their connections were aborted."""

LINGER_S: Final = 5.0
LINGER_BYTES: Final = 8 * 2**20
"""How long, and how much of, a request is still read after it was answered: more than any body that
is accepted, except for archives of the blocklist."""

READ_BYTES: Final = 64 * 1024
"""Amount that is read at once."""

PART_BYTES: Final = 64 * 1024
"""Amount that a client must read within `send_timeout_s`, or it counts as stalled."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, with a timeout of zero: closing resets the connection."""

_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_H2C: Final = (b"upgrade", b"h2c")

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

    def __init__(self) -> None:
        super().__init__()
        self.is_trusted_proxy: Callable[[str], bool] = lambda _: False
        self.loop_turns: LoopTurns | None = None
        self.connections: set[Connection] = set()
        self._by_address = Counter[str]()
        self._idle: dict[Connection, None] = {}
        """Connections without a request under way; the one that has been idle longest is first."""

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


class Connection:
    """A connection that is aborted when its client stops reading.

    hypercorn's own waits for such a client indefinitely, even while it shuts down.
    """

    address = ""
    """The client's address; empty if it had disconnected before it was served."""

    _protocol: "Http1"

    _head_timer: asyncio.TimerHandle | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    """Runs while no request is under way."""

    _unread_bytes: int | None = None
    """Read of a request since it was answered; None while there is no such request."""

    def __init__(
        self, config: ServerConfig, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.reader = reader
        self.writer = writer
        self.send_lock = asyncio.Lock()

    async def run(self, app: AppWrapper, context: WorkerContext, state: LifespanState) -> None:
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
        self._context = context
        try:
            await self._serve(app, state)
        except OSError:  # the client is gone
            pass
        finally:
            await self._close()
            self._stop_head_timer()
            self._hold_turns(is_held=False)
            self.config.release(self)

    async def _serve(self, app: AppWrapper, state: LifespanState) -> None:
        connected = self.writer.get_extra_info("socket")
        client = parse_socket_addr(connected.family, connected.getpeername())
        server = parse_socket_addr(connected.family, connected.getsockname())
        has_tls = False
        async with TaskGroup(self.loop) as tasks:
            self._protocol = Http1(
                app,
                self.config,
                self._context,
                tasks,
                ConnectionState(state),
                has_tls,
                client,
                server,
                self.protocol_send,
            )
            self._begin_idle()
            await self._read()

    async def _read(self) -> None:
        with suppress(OSError):  # the client is gone
            while not self.reader.at_eof():
                await self._protocol.handle(RawData(await self.reader.read(READ_BYTES)))
        await self._protocol.handle(Closed())

    def _begin_idle(self) -> None:
        """Close the connection when no request has come for long, or at once in a shutdown."""
        is_ending = self._context.terminated.is_set()
        idle_s = 0.0 if is_ending else self.config.keep_alive_timeout
        self._idle_timer = self.loop.call_later(idle_s, self.end_if_idle)

    def end_if_idle(self) -> None:
        """Close the connection, unless a request is under way."""
        if self._idle_timer is not None:
            self._stop_idle_timer()
            self.writer.close()
            # It is closed only after the client has read what is left in the buffer.
            self.loop.call_later(self.config.send_timeout_s, self._abort_if_open)

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
        if isinstance(event, Closed):
            await self._close()
        if isinstance(event, Updated):
            self._set_idle(is_idle=event.idle)

    def _set_idle(self, *, is_idle: bool) -> None:
        self._stop_head_timer()
        self.config.set_idle(self, is_idle=is_idle)
        if is_idle:
            self._hold_turns(is_held=False)
            self._begin_idle()
        else:
            self._stop_idle_timer()

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

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _count_unread(self, size: int) -> None:
        self._unread_bytes = (self._unread_bytes or 0) + size
        if self._unread_bytes > LINGER_BYTES:
            self._end_lingering()

    def _linger(self) -> None:
        """End the answer, and read on until the client closes (RFC 9112, 9.6).

        To close while it sends resets the connection: the client, or a proxy, loses the answer.
        """
        self._stop_head_timer()
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
                for start in range(0, len(data), PART_BYTES):
                    self.writer.write(data[start : start + PART_BYTES])
                    # Less than that the buffer takes at once, and a time limit costs 3 µs.
                    if self.writer.transport.get_write_buffer_size() > PART_BYTES:
                        async with asyncio.timeout(self.config.send_timeout_s):
                            await self.writer.drain()
        except TimeoutError:
            self.abort()
            await self._protocol.handle(Closed())
        except (OSError, RuntimeError):  # the client is gone
            await self._protocol.handle(Closed())

    def abort(self) -> None:
        """Reset the connection; unsent data is dropped."""
        # Without this the kernel keeps unsent data and retransmits it to the client for minutes.
        self._set_option(SOL_SOCKET, SO_LINGER, _RESET)
        self.writer.transport.abort()

    def _set_option(self, level: int, option: int, value: int | bytes) -> None:
        # After the client has disconnected uvloop has no socket, or one without a descriptor.
        with suppress(OSError, AttributeError, ValueError):
            self.writer.get_extra_info("socket").setsockopt(level, option, value)

    def _abort_if_open(self) -> None:
        if self in self.config.connections:
            self.abort()

    async def _close(self) -> None:
        self._stop_idle_timer()
        with suppress(OSError, RuntimeError):  # the client is gone
            self.writer.write_eof()
        try:
            self.writer.close()
            async with asyncio.timeout(self.config.send_timeout_s):  # written data is sent first
                await self.writer.wait_closed()
        except TimeoutError:
            self.abort()
        except (OSError, RuntimeError, asyncio.CancelledError) as error:
            _log.debug("connection_lost", reason=str(error))


class HeadBegun(ConnectionEvent):
    """The first bytes of a request have arrived."""


@dataclass(frozen=True, slots=True)
class Unread(ConnectionEvent):
    """Bytes of a request that is answered already, which are dropped."""

    size: int = 0


class _Requests(h11.Connection):
    """Reads requests of HTTP/1.0 and 1.1, and notes if one is refused."""

    is_refused = False

    def next_event(self) -> Any:  # noqa: ANN401 - h11 declares no more
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_version(event)
                return _without_h2c(event)
        except h11.RemoteProtocolError:
            self.is_refused = True
            raise
        return event


def _check_version(request: h11.Request) -> None:
    if request.http_version not in _VERSIONS:
        status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        raise h11.RemoteProtocolError("no HTTP/1", error_status_hint=status)


def _without_h2c(request: h11.Request) -> h11.Request:
    """Ignore `Upgrade: h2c`, which RFC 9113 has removed."""
    fields = list(request.headers)
    accepted = [field for field in fields if (field[0], field[1].strip().lower()) != _H2C]
    if len(accepted) == len(fields):
        return request
    return h11.Request(
        method=request.method,
        target=request.target,
        headers=accepted,
        http_version=request.http_version,
    )


class Http1(H11Protocol):
    """HTTP/1.1 and nothing else.

    Only a reverse proxy could know that a server speaks HTTP/2 without TLS, and it gains nothing
    from it. One connection of it can occupy the event loop for seconds with frames that make no
    request (resets, pings, settings).
    """

    _is_answered = False
    """The connection ends with this request, of which there may be more to read."""

    _is_sending_head = False
    _head = b""
    """The head of an answer; ASGI lets it wait for the first part of the body."""

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - as declared by hypercorn
        super().__init__(*args)
        size_max = self.config.h11_max_incomplete_size
        self.connection = _Requests(h11.SERVER, max_incomplete_event_size=size_max)
        self._send_on = self.send
        self.send = self._send

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
        self._is_sending_head = isinstance(event, Response)
        await super().stream_send(event)
        self._is_sending_head = False

    async def _send(self, event: ConnectionEvent) -> None:
        if isinstance(event, RawData) and self._is_sending_head:
            self._head = event.data
            return
        if self._head:
            event = await self._with_head(event)
        if isinstance(event, Closed) and self._has_refused():
            await self._begin_dropping()
        await self._send_on(event)

    async def _with_head(self, event: ConnectionEvent) -> ConnectionEvent:
        """`event` with the head that was held back, in one write unless it is long."""
        head, self._head = self._head, b""
        if isinstance(event, RawData) and len(event.data) <= PART_BYTES:
            return RawData(head + event.data)
        await self._send_on(RawData(head))
        return event

    def _has_refused(self) -> bool:
        """Whether a request was answered with an error without being read to its end."""
        connection = self.connection
        is_refused = isinstance(connection, _Requests) and connection.is_refused
        return is_refused and connection.our_state is h11.MUST_CLOSE

    async def _begin_dropping(self) -> None:
        self._is_answered = True
        await self._send_on(Unread())


async def serve(
    app: Quart, config: ServerConfig, stop: Callable[[], Awaitable[None]], grace_s: float
) -> None:
    """Serve `app` until `stop()` returns, then let requests under way finish for `grace_s`.

    In that time no connection is accepted; at its end open connections are aborted.
    """
    loop = asyncio.get_running_loop()
    served = wrap_app(cast("ASGIFramework", app), config.wsgi_max_body_size, "asgi")
    async with _lifespan(served, config) as state:
        context = WorkerContext(None)
        tasks = set[asyncio.Task[Any]]()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Not a coroutine: until its task begins, the end would not know of the connection.
            connection = Connection(config, reader, writer)
            task = loop.create_task(connection.run(served, context, state))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        servers = [
            await asyncio.start_server(begin, backlog=config.backlog, sock=listener)
            for listener in config.create_sockets().insecure_sockets
        ]
        try:
            await stop()
        finally:
            await context.terminated.set()
            for connection in list(config.connections):
                connection.end_if_idle()
            await _end(servers, tasks, config, grace_s)


@asynccontextmanager
async def _lifespan(app: AppWrapper, config: Config) -> AsyncIterator[LifespanState]:
    """The app is started within; what it keeps for its requests."""
    loop, state = asyncio.get_running_loop(), LifespanState({})
    lifespan = Lifespan(app, config, loop, state)
    task = loop.create_task(lifespan.handle_lifespan())
    await lifespan.wait_for_startup()
    if task.done():
        task.result()
    try:
        yield state
    finally:
        await lifespan.wait_for_shutdown()
        task.cancel()
        await task


async def _end(
    servers: list[asyncio.Server],
    tasks: set[asyncio.Task[Any]],
    config: ServerConfig,
    grace_s: float,
) -> None:
    """Accept no more, and wait for what is under way."""
    ends_at = time.monotonic() + grace_s

    async def abort_after_grace() -> None:
        await asyncio.sleep(grace_s)
        # uvloop waits for open connections before the wait below begins.
        for connection in list(config.connections):
            connection.abort()

    aborting = asyncio.create_task(abort_after_grace())
    for server in servers:
        server.close()
        await server.wait_closed()
    await asyncio.sleep(0)  # a connection that was just accepted is among the tasks from now on
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=max(LAST_S, ends_at - time.monotonic()))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    aborting.cancel()
