"""HTTP/1.1 over a connection that stays open, for clients that must cost less than the server.

As much of RFC 9112 as our own server needs: bodies with a length, and chunked ones. A client with
all comforts takes a millisecond of processor time for each request, which would be most of what a
benchmark on two cores measures.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import SplitResult, urlsplit

LINE_BYTES_MAX = 1024 * 1024
CONTINUES = "the connection ended in the middle of an answer"


@dataclass(frozen=True)
class Answer:
    """Status, headers (names in lower case), and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One connection to `base_url`, opened at the first request; one request at a time."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        self._url: SplitResult = urlsplit(base_url)
        lines = {"host": self._url.netloc, **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; a later request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def get(self, target: str) -> Answer:
        """The answer to a GET of `target`: path and query."""
        return await self.ask("GET", target)

    async def ask(self, method: str, target: str, body: bytes | None = None) -> Answer:
        """The answer to a request, whose body (if any) is JSON. Raises ConnectionError."""
        status, headers, pieces = await self.begin(method, target, body)
        return Answer(status, headers, b"".join([piece async for piece in pieces]))

    async def begin(
        self, method: str, target: str, body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        """Status, headers and the pieces of the body, which must all be taken."""
        reader, writer = await self._opened()
        sized = (
            ""
            if body is None
            else (f"content-type: application/json\r\ncontent-length: {len(body)}\r\n")
        )
        writer.write(f"{method} {target} HTTP/1.1\r\n{self._head}{sized}\r\n".encode())
        if body is not None:
            writer.write(body)
        await writer.drain()
        try:
            status, headers = _parsed(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError(CONTINUES) from error
        return status, headers, _body(reader, headers)

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._url.hostname, self._url.port, limit=LINE_BYTES_MAX
            )
        return self._streams


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in fields}


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body's pieces. Raises ConnectionError if it breaks off."""
    try:
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                yield (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        elif length := int(headers.get("content-length", "0")):
            yield await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError(CONTINUES) from error
