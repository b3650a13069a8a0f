"""Cached files on disk, shared by several processes: complete or absent, and bounded in bytes.

A file is written under a temporary name, synced and renamed. Its last use is its access time, which
is set explicitly and so survives a restart; the modification time stays as it was written. Removing
a file that another process reads is safe: its open descriptor keeps the bytes (POSIX `unlink`).

A file counts for the organisation whose request fetched it, which its extended attribute _OWNER
names. On a file system without such attributes all files count for the same one.
"""

import errno
import fcntl
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from analytics.model.errors import StoreFault
from analytics.storage.drop_order import drop_order
from analytics.storage.fsync import fsync, mkdir_synced
from service.core.threads import run_uncancellable

FREE_BYTES_MIN: Final = 512 * 2**20
"""What the cache leaves of the disk: the audit log is on the same one, and must go on."""

_NAME: Final = re.compile(r"[a-z0-9]+-[0-9a-f]{40,}")
_OWNER: Final = "user.countersign.owner"
_KEPT: Final = 7, 8
"""The part of the limit that eviction leaves, so that not every new file needs one."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many files a cache holds, and their total size."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A file that is being written. It stays locked for as long as its process lives."""

    path: Path
    descriptor: int


class _CacheEntry(NamedTuple):
    path: str
    size: int
    used_ns: int
    owner: str


class DiskCache:
    """A folder of cached files. Its methods block, and raise OSError."""

    def __init__(self, root: Path, bytes_max: int, *, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        self.bytes_max = bytes_max
        self._root = root
        self._free_bytes_min = free_bytes_min
        self._kept = root / "kept"
        self._parts = root / "parts"

    def path(self, name: str) -> Path:
        """The path of the file `name` (a word and a hexadecimal digest), even if it is missing."""
        if not _NAME.fullmatch(name):
            raise ValueError("not a name of the cache")
        return self._kept / name.partition("-")[2][:2] / name

    def new_part(self, size: int, owner: str) -> PartialFile:
        """A new empty file of `owner` that has room for `size` bytes.

        Evicts files if that makes enough room. Raises ENOSPC if less than
        `free_bytes_min` would remain free on the disk.
        """
        for folder in (self._kept, self._parts):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (missing := self._missing_bytes(size)) > 0:
            kept = self.usage().bytes
            if missing <= kept:  # else the cache would be emptied in vain
                self.evict(kept - missing)
            self.check_room(size)
        part = self._create()
        if sys.platform == "linux":
            with suppress(OSError):  # the file system has no such attributes
                os.setxattr(part.descriptor, _OWNER, owner.encode())
        return part

    def check_room(self, size: int) -> None:
        """Raise ENOSPC unless `free_bytes_min` stays free after `size` more bytes."""
        if self._missing_bytes(size) > 0:
            raise OSError(errno.ENOSPC, "less than the free bytes that the cache must leave")

    def keep(self, part: PartialFile, name: str) -> Path:
        """Give the complete `part` its `name`, durably. Replaces a file of the same name."""
        target = self.path(name)
        # Before the rename: after a power loss no name may lead to bytes that were never written.
        os.fsync(part.descriptor)
        if not target.parent.is_dir():
            mkdir_synced(target.parent, within=self._root)
        part.path.rename(target)  # atomic: same file system
        fsync(target.parent)
        return target

    def discard(self, part: PartialFile) -> None:
        """Remove `part`; its descriptor stays open."""
        part.path.unlink(missing_ok=True)

    def usage(self) -> Usage:
        """What is kept; parts are not counted."""
        sizes = [file.size for file in self._files()]
        return Usage(len(sizes), sum(sizes))

    def shrink(self) -> Usage:
        """Evict down to seven eighths of `bytes_max` if it is exceeded; returns what is left."""
        usage = self.usage()
        if usage.bytes <= self.bytes_max:
            return usage
        return self.evict(self.bytes_max * _KEPT[0] // _KEPT[1])

    def evict(self, bytes_max: int) -> Usage:
        """Remove files down to `bytes_max`, in the order of `drop_order`; returns what is left."""
        files = list(self._files())
        size, count = sum(file.size for file in files), len(files)
        for file in drop_order(files, time.time_ns()):
            if size <= bytes_max:
                break
            Path(file.path).unlink(missing_ok=True)  # another process may evict, too
            size -= file.size
            count -= 1
        return Usage(count, size)

    def remove_left_parts(self) -> int:
        """Remove the parts of processes that have died; returns how many there were."""
        removed = 0
        for path in self._parts.glob("*"):
            with suppress(FileNotFoundError):
                removed += _remove_unlocked(path)
        return removed

    def _create(self) -> PartialFile:
        while True:
            path = self._parts / secrets.token_hex(16)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            # Held until the descriptor is closed, be it by a crash: an unlocked part has no owner.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return PartialFile(path, descriptor)
            os.close(descriptor)  # a sweep removed it before it was locked

    def _missing_bytes(self, size: int) -> int:
        disk = os.statvfs(self._root)
        return size + self._free_bytes_min - disk.f_bavail * disk.f_frsize

    def _files(self) -> Iterator[_CacheEntry]:
        with suppress(FileNotFoundError), os.scandir(self._kept) as shards:
            for shard in shards:
                yield from _files_in(shard.path)


def _files_in(folder: str) -> Iterator[_CacheEntry]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                owner = _owner_of(entry.path)
                yield _CacheEntry(entry.path, status.st_size, status.st_atime_ns, owner)


def _owner_of(path: str) -> str:
    """The file's owner; "" for one that an older version stored."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.getxattr(path, _OWNER, follow_symlinks=False).decode(errors="replace")
    return ""


def touch(descriptor: int) -> None:
    """Record that the file is used now."""
    with suppress(OSError):  # a disk that takes no writes can still be read
        modified_ns = os.fstat(descriptor).st_mtime_ns
        # The modification time stays: it is when a document was confirmed, and identifies a file.
        os.utime(descriptor, ns=(time.time_ns(), modified_ns))


def _remove_unlocked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # Fails for as long as the writing process lives, in any process.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


READ_BYTES: Final = 256 * 1024
FileIdentity = tuple[int, int, int, int]
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


class OpenedFile:
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


async def open_file(path: Path) -> OpenedFile | None:
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
    return OpenedFile(descriptors[0], os.fstat(descriptors[0]))


def identity_of(status: os.stat_result) -> FileIdentity:
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
