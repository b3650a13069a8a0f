"""A package registry on loopback that sends bytes it has ready: what a proxy can at best be."""

import asyncio
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from benchmarks.hostile_inputs import npm_document, pypi_page
from benchmarks.proxies import packages

_MISSING: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True)
class Upstream:
    """A registry in a process of its own."""

    url: str
    process_id: int

    @property
    def pypi(self) -> str:
        """Its simple API."""
        return f"{self.url}/simple/"

    @property
    def npm(self) -> str:
        """Its npm API."""
        return f"{self.url}/npm/"


@contextmanager
def upstream() -> Iterator[Upstream]:
    """A running registry."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, url))
    process.start()
    listener.close()
    try:
        assert process.pid is not None
        yield Upstream(url, process.pid)
    finally:
        process.terminate()
        process.join()


def _serve(listener: socket.socket, url: str) -> None:
    @cache
    def answer(path: str) -> bytes:
        found = content(path, url)
        if found is None:
            return _MISSING
        kind, body = found
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def forever() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(answer), sock=listener)
        await server.serve_forever()

    asyncio.run(forever())


def content(path: str, url: str) -> tuple[str, bytes] | None:
    """The type and body of what is at `path`; None if there is nothing."""
    match path.strip("/").split("/"):
        case ["simple", name] if name.startswith("hostile-"):
            return "text/html", pypi_page(name)
        case ["npm", name] if name.startswith("hostile-"):
            return packages.FULL, npm_document(name)
        case ["simple", name]:
            return packages.SIMPLE, packages.simple_page(name, url)
        case ["files", _, _, _, file]:
            name = file.partition(f"-{packages.VERSION}-")[0].replace("_", "-")
            body, metadata = packages.wheel_of(name)
            return "application/octet-stream", metadata if file.endswith(".metadata") else body
        case ["npm", name]:
            return packages.FULL, packages.packument(name, url)
        case ["npm", name, "-", _]:
            return "application/octet-stream", packages.tarball_of(name)
    return None


class _Connection(asyncio.Protocol):
    """Requests come one by one, each in one piece or few, and without a body."""

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self._answer = answer
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].split(b" ")
            answer = self._answer(target.decode().partition("?")[0])
            if method == b"HEAD":
                answer = answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            self._transport.write(answer)
