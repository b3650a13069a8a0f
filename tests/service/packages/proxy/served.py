"""The proxy behind a real server socket: what a client is left with when a file goes wrong."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from service.app import hypercorn_server
from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION, Services
from service.app.hypercorn_server import ServerConfig
from tests.polling import HANG_S, until
from tests.service.packages.proxy.proxied import Proxied


@dataclass
class Served:
    """A server over the data dir of `proxied`, in this event loop."""

    proxied: Proxied
    services: Services
    port: int

    async def get(
        self, path: str, *headers: str, on_body: asyncio.Event | None = None, most: int = -1
    ) -> "Answered":
        """What comes for a GET with the key, to the end of the connection.

        `on_body` is set when the first byte of the body has come. With `most`, the client closes
        the connection as soon as it has about that many bytes.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [
            f"GET /proxy/acme/{path} HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            f"x-service-api-key: {self.proxied.key.secret}",
            "connection: close",
            *headers,
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        received = bytearray()
        try:
            async with asyncio.timeout(HANG_S):
                while piece := await reader.read(65_536):
                    received += piece
                    if on_body is not None and received.partition(b"\r\n\r\n")[2]:
                        on_body.set()
                    if 0 <= most <= len(received):
                        break
        except ConnectionResetError:
            pass
        finally:
            writer.close()
        return Answered(*bytes(received).partition(b"\r\n\r\n")[::2])


def is_answering() -> bool:
    """Whether a server in this event loop has a request in hand."""
    return any("handle_request" in repr(task.get_coro()) for task in asyncio.all_tasks())


@dataclass(frozen=True)
class Answered:
    """A response as it came over the wire."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1]) if self.head else 0

    @property
    def is_whole(self) -> bool:
        """Whether a client takes it for whole (RFC 9112, 8)."""
        fields = dict(line.lower().split(b": ", 1) for line in self.head.split(b"\r\n")[1:] if line)
        if b"content-length" in fields:
            return len(self.body) == int(fields[b"content-length"])
        if fields.get(b"transfer-encoding") == b"chunked":
            return self.body.endswith(b"0\r\n\r\n")
        return bool(self.head)


@asynccontextmanager
async def serving(proxied: Proxied, **changes: Any) -> AsyncIterator[Served]:
    settings = msgspec.structs.replace(proxied.world.services.settings, **changes)
    app = create_app(settings, proxied.clock, jobs=seal_jobs)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = ServerConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = logging.getLogger("hypercorn.error")
    config.accesslog = None
    config.send_timeout_s = settings.send_timeout_s
    stop = asyncio.Event()

    async def stopped() -> None:
        await stop.wait()

    server = asyncio.create_task(hypercorn_server.serve(app, config, stopped, 0.1))
    await until(lambda: "background" in app.extensions or server.done())
    try:
        yield Served(proxied, app.extensions[EXTENSION], port)
    finally:
        stop.set()
        await server
