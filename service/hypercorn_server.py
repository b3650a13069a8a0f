"""hypercorn with bounded writes, a bounded shutdown and stricter protocols.

hypercorn 0.18 has no settings for these, so this module, and no other, extends its classes.
"""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from socket import IPPROTO_TCP, SO_LINGER, SOL_SOCKET, TCP_NOTSENT_LOWAT
from typing import Any, Final

import hypercorn.asyncio.run
import hypercorn.protocol
import structlog
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived
from h2.exceptions import ProtocolError
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H2ProtocolAssumedError, H11Protocol
from priority.priority import PriorityError
from quart import Quart

LAST_S: Final = 1.0
"""Time that requests have to end after their connections were aborted."""

PART_BYTES: Final = 64 * 1024
"""Amount that a client must read within `send_timeout_s`, or it counts as stalled."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, with a timeout of zero: closing resets the connection."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\n"

_log = structlog.get_logger(__name__)


class ServerConfig(Config):
    """hypercorn's settings, this service's own, and the open connections."""

    send_timeout_s: float
    """How long a write may wait for its client to read, like nginx's `send_timeout`."""

    ends_at: float = 0.0
    """When the grace period ends, by the monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: set[Connection] = set()

    @property
    def graceful_timeout(self) -> float:  # type: ignore[override]
        """Rest of the grace period, for which hypercorn waits after it has closed connections."""
        return max(LAST_S, self.ends_at - time.monotonic())


class Connection(TCPServer):
    """A connection that is aborted when its client stops reading.

    hypercorn waits for such a client indefinitely, even while it shuts down.
    """

    config: ServerConfig

    async def run(self) -> None:
        """Serve the connection until it is closed."""
        # The kernel then asks for more when this much is unsent, not a third of a buffer of
        # megabytes, so that a slow client's progress is noticed.
        self._set_option(IPPROTO_TCP, TCP_NOTSENT_LOWAT, PART_BYTES)
        self.config.connections.add(self)
        try:
            await super().run()
        finally:
            self.config.connections.discard(self)

    async def protocol_send(self, event: ConnectionEvent) -> None:
        """Write with a time limit, or close."""
        if isinstance(event, RawData):
            await self._write(event.data)
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        """Write in parts: the time limit is for a lack of progress, not for the whole write."""
        try:
            async with self.send_lock:
                for part in _parts(data):
                    self.writer.write(part)
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


class Http1(H11Protocol):
    """HTTP/1.1 without `Upgrade: h2c`, which RFC 9113 has removed."""

    async def _check_protocol(self, event: Any) -> None:  # noqa: ANN401 - an h11 Request
        if (event.method, event.target, event.http_version) == (b"PRI", b"*", b"2.0"):
            raise H2ProtocolAssumedError(_PREFACE + self.connection.trailing_data[0])


class Http2(H2Protocol):
    """HTTP/2 in which a fault of one request ends only that request.

    Behind a proxy the other requests on the connection may be other clients'.
    """

    config: ServerConfig

    _unfinished: set[int]
    """Streams whose response has begun and not ended."""

    async def initiate(self, *rest: Any) -> None:  # noqa: ANN401 - as hypercorn has it
        """Start the connection, which is idle until its first request."""
        self._unfinished = set()
        await super().initiate(*rest)
        await self.send(Updated(idle=self.idle))

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response; reset the stream if flow control blocks it for too long.

        Also if the app fails midway: else the client would wait for the rest until the connection
        is closed.
        """
        if isinstance(event, Response):
            self._unfinished.add(event.stream_id)
        elif isinstance(event, StreamClosed) and event.stream_id in self._unfinished:
            await self._reset(event.stream_id, ErrorCodes.INTERNAL_ERROR)
            return
        try:
            if isinstance(event, Body):
                for part in _parts(event.data):
                    await self._send_part(Body(event.stream_id, data=part))
            elif isinstance(event, EndBody):
                self._unfinished.discard(event.stream_id)
                await self._send_part(event)
            else:
                await super().stream_send(event)
        except TimeoutError:
            await self._reset(event.stream_id, ErrorCodes.CANCEL)

    async def _send_part(self, event: StreamEvent) -> None:
        async with asyncio.timeout(self.config.send_timeout_s):
            await super().stream_send(event)
            # While the client's window is full, hypercorn buffers without bound.
            if (buffer := self.stream_buffers.get(event.stream_id)) is not None:
                await buffer.drain()

    async def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            # Losing a cancelled request's frames would break the whole connection: its requests
            # share the state of header compression.
            await asyncio.shield(self.send(RawData(data)))

    async def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                # An error response does not wait for the body. The body is dropped, but its share
                # of the window is returned (https://github.com/pgjones/hypercorn/pull/334).
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
                await self._flush()
            elif isinstance(event, RequestReceived) and not _is_readable(event):
                _log.info("request_rejected", reason="malformed HTTP/2 pseudo-header")
                await self._reset(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
            else:
                await self._handle_event(event)

    async def _handle_event(self, event: Event) -> None:
        try:
            await super()._handle_events([event])
        except (PriorityError, ProtocolError):  # the client violates the protocol
            await self.send(Closed())

    async def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        self._unfinished.discard(stream_id)
        with suppress(ProtocolError):  # the client has ended the stream, or the connection
            self.connection.reset_stream(stream_id, code)
        await self._flush()
        await self._close_stream(stream_id)
        await self._window_updated(stream_id)  # makes the sending task drop its data
        await self.send(Updated(idle=self.idle))


def _parts(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))


def _is_readable(request: RequestReceived) -> bool:
    """True if hypercorn can read method and path (RFC 9113, 8.3.1); it fails on others."""
    fields = dict(request.headers)
    path = fields.get(b":path")
    return path is not None and path.isascii() and fields[b":method"].isascii()


async def serve(
    app: Quart, config: ServerConfig, stop: Callable[[], Awaitable[None]], grace_s: float
) -> None:
    """Serve `app` until `stop()` returns, then let requests under way finish for `grace_s`.

    In that time no connection is accepted; at its end open connections are aborted.
    """
    hypercorn.asyncio.run.TCPServer = Connection  # type: ignore[attr-defined]
    hypercorn.protocol.H11Protocol = Http1  # type: ignore[attr-defined]
    hypercorn.protocol.H2Protocol = Http2  # type: ignore[attr-defined]
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
