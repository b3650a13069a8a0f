"""Package files by registry and digest: fetched once, verified, and from then on served from disk.

Several processes share the folder. Each downloads for itself, and the later rename replaces the
earlier file with the same bytes: waiting for another process would need a lock that outlives it.

Each process reads a file on disk through once before it serves a byte of it, and again if its
inode, size or modification time has changed. That detects damage by a power loss, a failing disk or
another program, and takes about a millisecond per megabyte.
"""

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from cachetools import LRUCache, TTLCache

from service.core.errors import file_fault
from service.core.single_flight import SingleFlight
from service.core.threads import run_uncancellable
from service.packages.proxy.disk_cache import (
    FREE_BYTES_MIN,
    READ_BYTES,
    DiskCache,
    FileIdentity,
    LoadedFile,
    OpenedFile,
    Usage,
    identity_of,
    open_file,
)
from service.packages.proxy.downloads import ABANDONED_S, Admit, Download, DownloadReader, Expected
from service.packages.proxy.file_keys import CacheKey
from service.packages.proxy.upstream import AdmittedFile
from service.packages.refusals import UpstreamFailed

SHRINK_EVERY: Final = 64
"""A process checks the size of the cache each time it has added 1/SHRINK_EVERY of the limit."""

_VERIFIED_MAX: Final = 100_000
"""How many verified files a process remembers: some 20 MB."""

LOADED_S: Final = 60.0
"""How long a small file is served from memory: all jobs of one push install the same packages."""

LOADED_FILE_BYTES_MAX: Final = READ_BYTES
LOADED_BYTES_MAX: Final = 16 * 2**20
"""Memory of a process for small files."""

_OPENED_MAX: Final = 3
_HASH_BYTES: Final = 2**20

_log = structlog.get_logger(__name__)


class Verified(NamedTuple):
    """A file whose digest was right, and its SHA-256."""

    identity: FileIdentity
    sha256: str | None


class FileCache:
    """The cached files of one data dir, for one process. Lives in one event loop."""

    def __init__(
        self,
        root: Path,
        bytes_max: int,
        *,
        free_bytes_min: int = FREE_BYTES_MIN,
        abandoned_s: float = ABANDONED_S,
        timer: Callable[[], float] = time.monotonic,
        observe: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`observe` gets what happened, for metrics: the same that `counts` counts.

        `hits`, `joined` (a request that shared the download of another), `downloads`, `damaged`.
        """
        self.counts = Counter[str]()
        self._folder = DiskCache(root, bytes_max, free_bytes_min=free_bytes_min)
        self._observe = observe
        self._abandoned_s = abandoned_s
        self._downloads: dict[CacheKey, Download] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._checks = SingleFlight[Verified | None]()
        self._verified = LRUCache[CacheKey, Verified](_VERIFIED_MAX)
        self._loaded = TTLCache[CacheKey, LoadedFile](
            LOADED_BYTES_MAX, LOADED_S, timer, getsizeof=attrgetter("size")
        )
        self._added_bytes = 0

    def loaded(self, key: CacheKey, expected_size: int | None) -> LoadedFile | None:
        """The file if it is in memory. Raises UpstreamFailed if its size is not as expected."""
        loaded = self._loaded.get(key)
        if loaded is not None:
            _check_size(loaded, expected_size)
            self._count("hits")
        return loaded

    async def load(self, key: CacheKey, file: OpenedFile) -> OpenedFile | LoadedFile:
        """`file`, which `open` returned; a small one is loaded into memory and closed."""
        if file.size > LOADED_FILE_BYTES_MAX:
            return file
        loaded = self._loaded[key] = await file.load()
        return loaded

    async def open(
        self, key: CacheKey, expected_size: int | None, admit: Admit
    ) -> OpenedFile | DownloadReader:
        """The file, from disk or as it arrives; the caller closes it.

        Raises UpstreamMissing, UpstreamFailed, and StoreUnavailable if there is no room for it.
        """
        found = await self._look(key)
        if found is None:
            admitted = await admit()
            try:
                # Again: other requests may have fetched it while this one waited for its turn.
                found = await self._look(key)
            except BaseException:
                admitted.release()
                raise
            if found is None:
                self._count("downloads")
                expected = Expected(key, expected_size, admitted.org)
                return await self._begin(expected, admitted).join()
            admitted.release()
        if isinstance(found, OpenedFile):
            return await self._checked(found, expected_size)
        self._count("joined")
        return await found.join()

    async def _look(self, key: CacheKey) -> OpenedFile | Download | None:
        """The file on disk, or its download; None if it must be requested."""
        download = self._joinable(key)
        if download is not None:
            return download
        cached = await self._find(key)
        # None on disk: perhaps another request has begun to fetch it meanwhile.
        return self._joinable(key) if cached is None else cached

    def _count(self, name: str) -> None:
        self.counts[name] += 1
        self._observe(name)

    async def has(self, key: CacheKey) -> bool:
        """Whether the file is on disk and has its digest. Raises StoreUnavailable."""
        cached = await self._find(key)
        if cached is not None:
            await cached.close()
        return cached is not None

    async def usage(self) -> Usage:
        """What is on disk now. Reads the size of each file."""
        return await run_uncancellable(self._folder.usage)

    async def sweep(self) -> None:
        """Remove what processes that died left behind, and what is over the limit."""
        left = await run_uncancellable(self._folder.remove_left_parts)
        if left:
            _log.info("package_parts_removed", files=left)
        await self._shrink()

    async def close(self) -> None:
        """End all downloads, and remove their temporary files."""
        await self._checks.close()
        for download in list(self._downloads.values()):
            download.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _checked(self, cached: OpenedFile, expected_size: int | None) -> OpenedFile:
        try:
            _check_size(cached, expected_size)
        except UpstreamFailed:
            await cached.close()
            raise
        self._count("hits")
        return cached

    async def _find(self, key: CacheKey) -> OpenedFile | None:
        """The file, if it is on disk and has its digest. Raises StoreUnavailable."""
        path = self._folder.path(key.name)
        try:
            for _ in range(_OPENED_MAX):
                cached = await open_file(path)
                if cached is None:
                    return None
                known = self._verified.get(key)
                if known is not None and known.identity == cached.identity:
                    cached.sha256 = known.sha256
                    return cached
                await cached.close()
                # Not the file that this process verified: verify it, and open it once more.
                verified = await self._checks.run(key, partial(self._verify, key, path))
                if verified is not None:
                    self._verified[key] = verified
        except OSError as error:
            raise file_fault(error) from error
        return None  # other processes keep replacing it: fetch it

    async def _verify(self, key: CacheKey, path: Path) -> Verified | None:
        verified, was_there = await run_uncancellable(partial(_check, key, path))
        if verified is None and was_there:
            self._count("damaged")
            _log.error("cached_package_damaged", key=str(key))
        return verified

    def _joinable(self, key: CacheKey) -> Download | None:
        """The file's download, unless it has failed and is only being cleaned up."""
        download = self._downloads.get(key)
        return None if download is None or download.fault is not None else download

    def _begin(self, expected: Expected, admitted: AdmittedFile) -> Download:
        download = Download(expected, self._folder, abandoned_s=self._abandoned_s)
        self._downloads[expected.key] = download
        task = asyncio.create_task(self._receive(expected.key, download, admitted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return download

    async def _receive(self, key: CacheKey, download: Download, admitted: AdmittedFile) -> None:
        try:
            status = await download.receive(admitted.stream)
        finally:
            admitted.release()
            # Removed first, so that no request joins a download whose file is closed.
            # A failed download may have a successor under the same key, which must stay joinable.
            if self._downloads.get(key) is download:
                del self._downloads[key]
            await download.leave()
        # Written and verified by this process just now: it need not be read through again.
        if status is not None:
            self._verified[key] = Verified(identity_of(status), download.sha256)
            self._added_bytes += status.st_size
            if self._added_bytes * SHRINK_EVERY > self._folder.bytes_max:
                await self._shrink()

    async def _shrink(self) -> None:
        self._added_bytes = 0
        try:
            await run_uncancellable(self._folder.shrink)
        except OSError as error:
            _log.warning("package_cache_not_shrunk", reason=str(error))


def _check_size(file: OpenedFile | LoadedFile, expected_size: int | None) -> None:
    """Raise UpstreamFailed if the file does not have the size that its document states."""
    if expected_size not in {None, file.size}:
        raise UpstreamFailed(
            f"the document states {expected_size} bytes for a file that has {file.size}"
        )


def _check(key: CacheKey, path: Path) -> tuple[Verified | None, bool]:
    """The file's identity if its digest is right, else None; and whether the file existed.

    Reads the whole file. A damaged one is removed.
    """
    content_hash = key.file.new_hash()
    sha256 = content_hash if key.file.algorithm == "sha256" else hashlib.sha256()
    try:
        with path.open("rb") as file:
            # Of the open file: the name may lead to another one by the time it has been read.
            identity = identity_of(os.fstat(file.fileno()))
            while content := file.read(_HASH_BYTES):
                content_hash.update(content)
                if sha256 is not content_hash:
                    sha256.update(content)
    except FileNotFoundError:
        return None, False
    except OSError:  # a bad block
        path.unlink(missing_ok=True)
        return None, True
    if content_hash.hexdigest() == key.file.hex:
        return Verified(identity, sha256.hexdigest()), True
    path.unlink(missing_ok=True)
    return None, True
