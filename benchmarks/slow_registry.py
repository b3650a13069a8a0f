"""A package registry on loopback, parts of which are slow: for attacks on who shares a proxy.

It has any project, by the beginning of its name: `small` is answered at once, the file of `large`
arrives slowly and breaks off after BREAKS_S, and for `hang` no answer begins until SLOW_S is over.
So nothing of an attack is left under way for longer.
"""

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from tests.package_documents import SIMPLE, simple_file, simple_page

SLOW_S: Final = 8.0
BREAKS_S: Final = 2.0
"""After at most so long; the first ones after a quarter of it, so that at any time some do."""

FILE: Final = "-1.0-py3-none-any.whl"
_LARGE_BYTES: Final = 4_000_000
_DRIP: Final = bytes(4096)
_AT: Final = datetime(2024, 1, 1, tzinfo=UTC)
_DRIP_S: Final = BREAKS_S / 4


@contextmanager
def slow_registry() -> Iterator[dict[str, str]]:
    """The settings of a proxy that asks a running one: as two registries, PyPI's and npm's."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, url))
    process.start()
    listener.close()
    try:
        yield {
            "COUNTERSIGN_PROXY_PYPI_UPSTREAM": f"{url}/simple/",
            "COUNTERSIGN_PROXY_NPM_UPSTREAM": f"{url}/npm/",
        }
    finally:
        process.terminate()
        process.join()


def _serve(listener: socket.socket, url: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if not await _answer(head.split(b" ")[1].decode(), url, writer):
                    break
        writer.close()

    async def forever() -> None:
        server = await asyncio.start_server(talk, sock=listener)
        await server.serve_forever()

    asyncio.run(forever())


async def _answer(path: str, url: str, writer: asyncio.StreamWriter) -> bool:
    """Answer a GET; False if nothing can follow on this connection."""
    name = path.strip("/").rpartition("/")[2]
    if name.startswith("hang"):
        await asyncio.sleep(SLOW_S)
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
    elif not path.startswith("/files/"):
        _send(writer, SIMPLE, _page(name, url))
    elif name.startswith("small"):
        _send(writer, "application/octet-stream", _content(name.removesuffix(FILE)))
    else:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {_LARGE_BYTES}\r\n\r\n".encode())
        for _ in range(1 + hash(name) % 4):
            writer.write(_DRIP)
            await writer.drain()
            await asyncio.sleep(_DRIP_S)
        return False
    await writer.drain()
    return True


def _page(name: str, url: str) -> bytes:
    """The page of a project with one file."""
    escaped = name.replace("-", "_")
    more = {} if name.startswith("small") else {"size": _LARGE_BYTES}
    file = simple_file(f"{url}/files/{escaped}{FILE}", _content(escaped), _AT, **more)
    return simple_page(name, [file])


def _content(name: str) -> bytes:
    return f"{name:1000}".encode()


def _send(writer: asyncio.StreamWriter, kind: str, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
