"""A complete, verified package file: open for reading, or in memory."""

import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from analytics.model.errors import StoreFault
from service.core.threads import run_uncancellable
from service.packages.proxy.cache_folder import touch

READ_BYTES: Final = 256 * 1024
Identity = tuple[int, int, int, int]
"""Device, inode, size and modification time."""

_Result = TypeVar("_Result")


class LoadedFile:
    """A small cached file whose bytes are in memory, with the SHA-256 of them."""

    def __init__(self, content: bytes, sha256: str | None) -> None:
        self.size = len(content)
        self.sha256 = sha256
        self._content = content

    def part(self, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes from `start` up to, not including, `stop`."""
        return self._content[start:stop]

    async def close(self) -> None:
        """Do nothing: there is no descriptor to release."""


class CachedFile:
    """An open file. Its bytes stay readable through the descriptor even if it is evicted.

    The caller closes it with `close`, or by starting an iteration over `pieces`.
    """

    def __init__(self, descriptor: int, status: os.stat_result, sha256: str | None = None) -> None:
        self.size = status.st_size
        self.sha256 = sha256
        """The SHA-256 of its bytes in hex, once it is verified."""

        self.identity = identity_of(status)
        self._descriptor: int | None = descriptor

    async def pieces(self, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to, not including, `stop`; closes the file at the end.

        Raises StoreFault if the file became shorter.
        """
        at, end = start, self.size if stop is None else min(stop, self.size)
        try:
            while at < end:
                piece = await read_at(self._descriptor, min(READ_BYTES, end - at), at)
                at += len(piece)
                yield piece
        finally:
            await self.close()

    async def compute(self, function: Callable[[Path], _Result]) -> _Result:
        """The result of `function`, called in a thread with a path that it may open and read.

        The path is that of the open descriptor, so the file may be evicted meanwhile.
        """
        path = Path(f"/dev/fd/{self._descriptor}")
        return await run_uncancellable(partial(function, path))

    async def load(self) -> LoadedFile:
        """The whole file in memory; closes this one. Raises StoreFault if it became shorter."""
        pieces = [piece async for piece in self.pieces()]
        return LoadedFile(b"".join(pieces), self.sha256)

    async def close(self) -> None:
        """Release the file. Safe to repeat."""
        # Cleared before the await: a second `close` must not close a reused descriptor number.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # In a thread: if the file was evicted, its blocks are freed now.
            await run_uncancellable(partial(os.close, descriptor))


async def open_file(path: Path) -> CachedFile | None:
    """The file at `path`, marked as used now; None if there is none. Raises OSError."""
    descriptors: list[int] = []
    try:
        await run_uncancellable(lambda: descriptors.append(_open(path)))
    except FileNotFoundError:
        return None
    except BaseException:  # cancelled, when it was open already
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return CachedFile(descriptors[0], os.fstat(descriptors[0]))


def identity_of(status: os.stat_result) -> Identity:
    """Values that differ for another file, and for the same file with changed contents."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _open(path: Path) -> int:
    # A link could lead to a file outside the cache, such as a secret.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    touch(descriptor)
    return descriptor


async def read_at(descriptor: int | None, size: int, offset: int) -> bytes:
    """Up to `size` bytes from `offset`, at least one. Raises StoreFault if there is none."""
    if descriptor is None:
        raise ValueError("the file is closed")
    piece = await run_uncancellable(partial(os.pread, descriptor, size, offset))
    if not piece:
        raise StoreFault("a cached package file is shorter than it was")
    return piece
