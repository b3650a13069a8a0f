"""Fetching the objects of segments into the cache: many at a time, each once, checked."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.objects import Objects
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing
from analytics.storage.verified_files import ExpectedFile

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

FETCHES_MAX: Final = 16
"""How many objects are fetched at a time."""

AHEAD_PART: Final = 4
"""Files fetched ahead take at most 1/AHEAD_PART of the cache: more would displace each other."""


_CLOSED: Final = "the store of segments was closed"
"""Said to a query that runs on while the process ends."""


class ObjectFetcher:
    """Fetches files into `cache` in threads of its own, which `map` lends to other requests."""

    def __init__(self, objects: Objects, cache: CacheFolder, observer: CacheObserver) -> None:
        self._objects = objects
        self._cache = cache
        self._observer = observer
        self._threads = ThreadPoolExecutor(FETCHES_MAX, "fetch")
        self._ahead: dict[Path, int] = {}
        self._lock = Lock()

    def fetch_ahead(self, name: str, file: ExpectedFile) -> None:
        """Begin to fetch the file of the segment `name`, if it is not there and there is room."""
        with self._lock:
            size = sum(self._ahead.values()) + file.size
            if file.path in self._ahead or size > self._cache.bytes_max // AHEAD_PART:
                return
            if file.path.exists():
                return
            self._ahead[file.path] = file.size
        self._begin(self._fetch_quietly, name, file)

    def close(self) -> None:
        """Begin no further request."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def fetch_missing(self, files: Sequence[ExpectedFile]) -> None:
        """Fetch those of the pinned `files` that are not there as they should be."""
        # What is there and unverified is hashed by the threads that fetch, several at a time.
        missing = [file for file in files if not self._is_known(file)]
        self._observer.hit(len(files) - len(missing))
        if len(missing) < 2:
            for file in missing:
                self._fetch(file)
            return
        coming: list[Future[None]] = []
        try:
            # Extended one by one: if a fetch cannot begin, those before it are there to cancel.
            coming += (self._begin(self._fetch, file) for file in missing)
            for fetched in coming:
                fetched.result()
        finally:
            for fetched in coming:
                fetched.cancel()

    def _is_known(self, file: ExpectedFile) -> bool:
        return self._cache.verified.knows(_content_of(file)) and self._holds(file)

    def _holds(self, file: ExpectedFile) -> bool:
        try:
            return self._cache.holds(_content_of(file))
        except OSError as error:
            raise StoreUnreachable(f"{file.path}: {error.strerror}") from error

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[_Result]:
        """`function` of each of `items`, several at a time."""
        try:
            return self._threads.map(function, items)
        except RuntimeError as error:
            raise StoreUnreachable(_CLOSED) from error

    def _begin(self, function: Callable[..., None], *arguments: object) -> Future[None]:
        try:
            return self._threads.submit(function, *arguments)
        except RuntimeError as error:
            raise StoreUnreachable(_CLOSED) from error

    def _fetch_quietly(self, name: str, file: ExpectedFile) -> None:
        try:
            with suppress(StoreFault), self._cache.pinned([name]):
                if not self._holds(file):
                    self._fetch(file)
        finally:
            with self._lock:
                self._ahead.pop(file.path, None)

    def _fetch(self, file: ExpectedFile) -> None:
        """Bring the pinned `file` into the cache, unless another thread does so meanwhile."""
        try:
            with self._cache.fetching(file.path):
                # Checked again: another thread may have fetched it during the wait for the lock.
                if self._holds(file):
                    self._observer.hit(1)
                    return
                self._download(file)
        except ObjectMissing:
            # An index is derived: without it the rows are read.
            if file.path.suffix != ".index":
                raise
        except OSError as error:
            raise StoreUnreachable(f"{file.path}: {error.strerror}") from error

    def _download(self, file: ExpectedFile) -> None:
        began_at = time.monotonic()
        size = self._cache.with_room(lambda: self._copy_of(file))
        if size is not None:
            self._observer.fetched(size, time.monotonic() - began_at)

    def _copy_of(self, file: ExpectedFile) -> int | None:
        """Make a copy of the object; its bytes, or None for an index that is not the one wanted."""
        key = file.path.relative_to(self._cache.root).as_posix()
        with self._cache.work_folder() as folder:
            target = folder / file.path.name
            size, sha256 = self._objects.download(key, target, file.size)
            if file.path.suffix == ".index" and (size, sha256) != (file.size, file.sha256):
                return None  # damaged, or just being replaced: it is rebuilt, and rows are read
            # Before the copy gets its name: readers open the file of that name unchecked.
            check_content(key, file, size, sha256)
            self._cache.add(target, file.path)
            self._cache.verified.add(file)
        return size


def _content_of(file: ExpectedFile) -> ExpectedFile:
    """What has to be as the catalog says: an index has checksums, and a replaced one is as good."""
    return replace(file, sha256="") if file.path.suffix == ".index" else file


def check_content(name: str, file: ExpectedFile, size: int, sha256: str) -> None:
    """Raise ObjectDamaged unless the bytes are those that the catalog says."""
    if size != file.size:
        stated = f"{size} bytes" if size < file.size else "more bytes"
        raise ObjectDamaged(f"{name}: {stated} instead of {file.size}")
    if file.sha256 not in {"", sha256}:
        raise ObjectDamaged(f"{name}: its SHA-256 is {sha256} instead of {file.sha256}")
