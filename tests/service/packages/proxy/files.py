"""A file cache whose registry is on loopback, and ways for that registry to send a file."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from service.core.origins import parse_registry
from service.packages.proxy.answers import UpstreamLimits
from service.packages.proxy.disk_cache import OpenedFile
from service.packages.proxy.downloads import Admit, DownloadReader
from service.packages.proxy.file_cache import FileCache
from service.packages.proxy.file_keys import CacheKey, FileKey
from service.packages.proxy.upstream import Upstream
from tests.polling import until
from tests.service.packages.proxy.registry import Answer, Asked, FakeRegistry, head

LARGE = bytes(range(256)) * 16 * 1024
"""Four megabytes: its first byte is sent before its last one has come."""

PATH = "/files/a.whl"
BIG = bytes(range(256)) * 4096
"""A megabyte: more than is written or held back at once."""


def key_of(content: bytes, algorithm: str = "sha256", registry: str = "01" * 32) -> CacheKey:
    return FileKey(algorithm, hashlib.new(algorithm, content).hexdigest()).at(registry)


@dataclass
class Files:
    """A cache, its folder, and where it fetches from."""

    cache: FileCache
    folder: Path
    registry: FakeRegistry
    upstream: Upstream

    @property
    def admit(self) -> Admit:
        return partial(self.upstream.admit_file, self.registry.url + PATH, "acme")

    async def open(
        self, key: CacheKey, expected_size: int | None = None
    ) -> OpenedFile | DownloadReader:
        return await self.cache.open(key, expected_size, self.admit)

    async def get(self, key: CacheKey, expected_size: int | None = None) -> bytes:
        return await read(await self.open(key, expected_size))

    async def settled(self) -> None:
        await until(lambda: not self.cache._tasks)

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("kept/*/*"))

    def parts(self) -> list[Path]:
        return list(self.folder.glob("parts/*"))

    def path(self, key: CacheKey) -> Path:
        return self.folder / "kept" / key.file.hex[:2] / key.name


async def read(file: OpenedFile | DownloadReader) -> bytes:
    return b"".join([piece async for piece in file.pieces()])


async def read_to_failure(
    file: OpenedFile | DownloadReader,
    got: bytearray,
    on_piece: Callable[[], None] = lambda: None,
) -> Exception | None:
    """Add to `got` what comes before the connection breaks; why it does."""
    try:
        async for piece in file.pieces():
            got += piece
            on_piece()
    except Exception as error:
        return error
    return None


@asynccontextmanager
async def open_files(
    folder: Path,
    registry: FakeRegistry,
    http: httpx2.AsyncClient,
    *,
    bytes_max: int = 2**30,
    limits: UpstreamLimits | None = None,
    is_alone: bool = True,
    **options: Any,
) -> AsyncIterator[Files]:
    """A cache in `folder`; if it `is_alone` nothing is left in the folder of parts at the end."""
    options.setdefault("free_bytes_min", 0)
    cache = FileCache(folder / "files", bytes_max, **options)
    upstream = Upstream(http, parse_registry(registry.url), limits)
    files = Files(cache, folder / "files", registry, upstream)
    try:
        yield files
    finally:
        await cache.close()
    assert not is_alone or files.parts() == []


@dataclass
class Valve:
    """An answer that sends `first`, then waits to be opened, then sends `rest`."""

    first: bytes
    rest: bytes
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(content_length=str(len(self.first + self.rest))) + self.first)
        await writer.drain()
        self.has_begun.set()
        await self.is_open.wait()
        writer.write(self.rest)


def cut_after(content: bytes, at: int) -> Answer:
    """Says it sends `content`, and breaks off."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(content_length=str(len(content))) + content[:at])

    return answer


def unsized(content: bytes) -> Answer:
    """Sends `content` without saying how much it is."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + content)

    return answer


def held(content: bytes, gate: asyncio.Event, size: int | None = None) -> Answer:
    """Sends half of `content`, and the rest once `gate` is set; `size` is what it announces."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        half = len(content) // 2
        writer.write(head(**({} if size is None else {"content_length": str(size)})))
        writer.write(content[:half])
        await writer.drain()
        await gate.wait()
        writer.write(content[half:])

    return answer
