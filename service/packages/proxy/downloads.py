"""One file on its way from a registry into the cache, read by several requests meanwhile.

The last bytes are held back until the digest is verified: a client that receives a whole file has
the file that the registry's document names; any other client sees a broken connection.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from service.core.errors import StorageFull, StoreUnavailable, file_fault
from service.core.threads import run_uncancellable
from service.packages.proxy.answers import FileStream
from service.packages.proxy.disk_cache import (
    READ_BYTES,
    DiskCache,
    OpenedFile,
    PartialFile,
    read_at,
)
from service.packages.proxy.file_keys import CacheKey
from service.packages.proxy.upstream import AdmittedFile
from service.packages.refusals import PACKAGE_CACHE_FULL, NotAsDocumented, UpstreamFailed

HOLD_BACK_BYTES: Final = 64 * 1024
WHOLE_BYTES_MAX: Final = 2**20
WHOLE_S: Final = 2.0
"""For how large a file, and for how long, a first byte waits until all of the file has arrived."""

ABANDONED_S: Final = 60.0
"""How long a download goes on without a reader. Clients that time out and restarted CI jobs come
back within seconds and find the file; a useless download does not go on for half an hour."""

_WRITE_BYTES: Final = 256 * 1024
_WRITE_AFTER_S: Final = 0.5
"""Readers have time limits: they must not wait until a slow registry has filled the buffer."""

Fetch = Callable[[], AbstractAsyncContextManager[FileStream]]
"""Starts to receive a file, see `Upstream.file`."""

Admit = Callable[[], Awaitable[AdmittedFile]]
"""Waits until a file may be requested, see `Upstream.admit_file`."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """The digest and size that the file must have; the size is None if it is not known."""

    key: CacheKey
    size: int | None
    owner: str
    """The organisation whose request fetches it, see DiskCache."""


class Download:
    """Receives one file; shared by `DownloadReader`s. Lives in one event loop."""

    def __init__(
        self,
        expected: Expected,
        folder: DiskCache,
        *,
        abandoned_s: float = ABANDONED_S,
    ) -> None:
        self.size = expected.size
        """The size of the file if it is known: from its document, else from the response."""

        self.written = 0
        self.is_verified = False
        self.fault: Exception | None = None
        self.progress = asyncio.Event()
        """Set when any of the attributes above changes, and then replaced by a new event."""

        self._expected = expected
        self._folder = folder
        self._abandoned_s = abandoned_s
        self._hash = expected.key.file.new_hash()
        self._sha256 = hashlib.sha256()
        self._part: PartialFile | None = None
        self._users = 1
        """The number of reading requests, plus one for the receiving task."""

        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def join(self) -> "DownloadReader":
        """A reader, once the registry has begun to send the file.

        Raises UpstreamMissing, UpstreamFailed or StoreUnavailable; then no byte was sent.
        """
        reader = DownloadReader(self)
        self._enter()
        try:
            while self._part is None and self.fault is None:
                await self.progress.wait()
            if self.fault is not None:
                raise self.fault
        except BaseException:
            await reader.close()
            raise
        return reader

    @property
    def readable(self) -> int:
        """How many bytes readers may be given now."""
        return self.written if self.is_verified else max(0, self.written - HOLD_BACK_BYTES)

    @property
    def sha256(self) -> str | None:
        """The file's SHA-256 in hex: as its document states, else once all of it has arrived."""
        if self._expected.key.file.algorithm == "sha256":
            return self._expected.key.file.hex
        return self._sha256.hexdigest() if self.is_verified else None

    @property
    def descriptor(self) -> int:
        """The open file, for as long as there are users."""
        if self._part is None:
            raise ValueError("the download has not begun, or has ended")
        return self._part.descriptor

    async def leave(self) -> None:
        """Count one user less; the last one closes the file."""
        self._users -= 1
        # The one user left is the receiving task: no request reads any more.
        if self._users == 1 and self._task is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._abandoned_s, self.stop)
        if self._users == 0 and self._part is not None:
            descriptor, self._part = self._part.descriptor, None
            # In a thread: if the file has no name, its blocks are freed now.
            await run_uncancellable(partial(os.close, descriptor))

    def stop(self) -> None:
        """End receiving; readers get UpstreamFailed unless the file is verified already."""
        self.fault = self.fault or UpstreamFailed("the download was stopped")
        self._announce()
        if self._task is not None:
            self._task.cancel()

    async def receive(self, fetch: Fetch) -> os.stat_result | None:
        """Receive the file; returns its status in the cache, None if it did not get there.

        Raises nothing but CancelledError: failures reach the readers. The caller must `leave` once
        no request can join any more.
        """
        self._task = asyncio.current_task()
        status = None
        try:
            async with fetch() as stream:
                await self._receive(stream)
            # Before the file gets its name: what is in the cache is served without this download.
            self._verify()
            status = await self._keep()
        except OSError as error:
            self.fault = _store_fault(error)
        except Exception as error:  # even a bug: the readers would wait without end
            self.fault = error
        finally:
            self._task = None
            self._cancel_timer()
            self._announce()
            if status is None:
                await self._discard()
        return status

    def _enter(self) -> None:
        self._users += 1
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _receive(self, stream: FileStream) -> None:
        """Write what the registry sends, but never more bytes than the file must have."""
        expected = self._expected.size
        if expected is not None and stream.length not in {None, expected}:
            raise self._lie(f"the registry sends {stream.length} bytes instead of {expected}")
        self.size = stream.length if expected is None else expected
        await run_uncancellable(self._make_part)
        self._announce()
        async with aclosing(_buffered(stream.pieces)) as contents:
            async for content in contents:
                if expected is not None and self.written + len(content) > expected:
                    raise self._lie(f"the registry sends more than {expected} bytes")
                await run_uncancellable(partial(self._write, content))
                self.written += len(content)
                self._announce()

    def _make_part(self) -> None:
        """Create the file. Runs in a thread, and stores the result itself.

        A returned one would be lost if the caller is cancelled.
        """
        self._part = self._folder.new_part(self.size or 0, self._expected.owner)

    def _write(self, content: bytes) -> None:
        """Append `content`. Runs in a thread."""
        # Checked for each write: the size may be unknown, and others fill the same disk.
        self._folder.check_room(len(content))
        left, at = memoryview(content), self.written
        while left:
            count = os.pwrite(self.descriptor, left, at)
            left, at = left[count:], at + count
        self._hash.update(content)
        if self._expected.key.file.algorithm != "sha256":
            self._sha256.update(content)

    def _verify(self) -> None:
        expected = self._expected
        if expected.size is not None and self.written != expected.size:
            raise self._lie(f"the registry sent {self.written} bytes instead of {expected.size}")
        if self._hash.hexdigest() != expected.key.file.hex:
            raise self._lie("the registry sent a file with another digest than its document states")
        self.size = self.written
        self.is_verified = True
        self._announce()

    async def _keep(self) -> os.stat_result | None:
        """Move the verified file into the cache. If that fails, readers still get the file."""
        part = self._part
        assert part is not None  # noqa: S101 - for the type checker: `_receive` has made it
        try:
            return await run_uncancellable(
                partial(_keep, self._folder, part, self._expected.key.name)
            )
        except OSError as error:
            _log.warning("package_not_cached", key=str(self._expected.key), reason=str(error))
            return None

    async def _discard(self) -> None:
        """Remove the temporary name if the file still has one."""
        if self._part is not None:
            with suppress(OSError):  # the sweep tries again
                await run_uncancellable(partial(self._folder.discard, self._part))

    def _announce(self) -> None:
        self.progress.set()
        self.progress = asyncio.Event()

    def _lie(self, reason: str) -> NotAsDocumented:
        _log.warning("package_not_as_documented", key=str(self._expected.key), reason=reason)
        return NotAsDocumented(reason)


class DownloadReader:
    """One request's view of a download; closed in the same ways as a `OpenedFile`."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self._is_open = True

    @property
    def size(self) -> int | None:
        """The size of the file; None if neither document nor registry states it."""
        return self._download.size

    @property
    def is_verified(self) -> bool:
        """True once all of the file has arrived and has its digest."""
        return self._download.is_verified

    @property
    def sha256(self) -> str | None:
        """The file's SHA-256, None if it is not known yet."""
        return self._download.sha256

    async def ready(self) -> None:
        """Wait until there is a first byte to send, and for a small file until `sha256` is known.

        Raises what made the download fail.
        """
        download = self._download
        await self._wait_until(lambda: download.readable > 0)
        if download.sha256 is not None or (download.size or 0) > WHOLE_BYTES_MAX:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WHOLE_S):
                await self._wait_until(lambda: download.written > WHOLE_BYTES_MAX)

    async def _wait_until(self, is_enough: Callable[[], bool]) -> None:
        download = self._download
        while not (download.is_verified or is_enough()):
            progress = download.progress
            if download.fault is not None:
                raise download.fault
            await progress.wait()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """All bytes, as they arrive; closes the reader at the end.

        Any error must break the connection, or a client would take a part for the whole.
        """
        download, at = self._download, 0
        try:
            while True:
                progress = download.progress
                if download.fault is not None and not download.is_verified:
                    raise download.fault
                if at < download.readable:
                    size = min(READ_BYTES, download.readable - at)
                    piece = await read_at(download.descriptor, size, at)
                    at += len(piece)
                    yield piece
                elif download.is_verified:
                    return
                else:
                    await progress.wait()
        finally:
            await self.close()

    async def complete(self) -> OpenedFile:
        """The whole file, for ranges: its digest must be verified before any part of it is sent.

        Closes the reader. Raises what made the download fail.
        """
        download = self._download
        try:
            await self._wait_until(lambda: False)
            # The download closes its own descriptor when its last user leaves.
            descriptor = os.dup(download.descriptor)
            return OpenedFile(descriptor, os.fstat(descriptor), download.sha256)
        finally:
            await self.close()

    async def close(self) -> None:
        """End reading; the download goes on for other readers, or for a while. Safe to repeat."""
        if self._is_open:
            self._is_open = False
            await self._download.leave()


def _keep(folder: DiskCache, part: PartialFile, name: str) -> os.stat_result:
    folder.keep(part, name)
    return os.fstat(part.descriptor)


async def _buffered(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """`pieces` joined into larger ones: each write costs a change of threads."""
    loop = asyncio.get_running_loop()
    buffer, since = bytearray(), loop.time()
    async for piece in pieces:
        buffer += piece
        if len(buffer) >= _WRITE_BYTES or loop.time() - since > _WRITE_AFTER_S:
            yield bytes(buffer)
            buffer, since = bytearray(), loop.time()
    if buffer:
        yield bytes(buffer)


def _store_fault(error: OSError) -> StoreUnavailable:
    fault = file_fault(error)
    answer = PACKAGE_CACHE_FULL() if fault is StorageFull else fault()
    answer.__cause__ = error
    return answer
