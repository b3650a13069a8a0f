"""A package registry on loopback that does what a test tells it, right or wrong."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx2

from tests.talking import PLAIN


@dataclass(frozen=True)
class Asked:
    """A request that the registry got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class FakeRegistry:
    """Answers by path; everything it was asked is kept."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def says(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> None:
        """Answer `path` with `body`; names of header fields have `_` for `-`."""

        async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(head(status, **({"content_length": str(len(body))} | headers)) + body)

        self.answers[path] = answer

    def does(self, path: str, answer: Answer) -> None:
        """Have `answer` write the response for `path`."""
        self.answers[path] = answer

    def times(self, path: str) -> int:
        """How often `path` was asked for."""
        return sum(asked.path == path for asked in self.asked)


def head(status: int = 200, **headers: str) -> bytes:
    """The bytes of a response up to its body; each connection carries one."""
    fields = {"connection": "close"} | headers
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()]
    return f"HTTP/1.1 {status} OK\r\n{''.join(lines)}\r\n".encode()


def bomb(size: int) -> bytes:
    return gzip.compress(b"\0" * size, 9, mtime=0)


@asynccontextmanager
async def running_registry(otherwise: Answer | None = None) -> AsyncIterator[FakeRegistry]:
    """A registry that knows nothing yet; `otherwise` answers for other paths, or it is 404."""
    registry = FakeRegistry()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            asked = await _read(reader)
            registry.asked.append(asked)
            answer = registry.answers.get(asked.path, otherwise)
            if answer is None:
                writer.write(head(404, content_length="0"))
            else:
                await answer(asked, writer)
            await writer.drain()
        writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    registry.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield registry
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def http_client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, verify=PLAIN) as http:
        yield http


async def _read(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = lines[0].split(" ")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    fields = {name.lower(): value for name, value in headers.items()}
    body = await reader.readexactly(int(fields.get("content-length", 0)))
    return Asked(method, path, fields, body)
