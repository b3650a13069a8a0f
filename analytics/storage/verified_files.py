"""Whether files hold the bytes that the catalog says: a digest once for each state of a file.

DuckDB compares no checksums of pages, and those that pyarrow compares do not cover the headers of
pages or the footer. So no reader is given the path of a file before the whole of it was hashed by
this process.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.segment_metadata import Segment

VERIFIED_MAX: Final = 100_000
"""Of how many files it is known that they were verified: some 40 MB."""

COPY_MODE: Final = 0o400
"""The mode of a copy in a cache; see `analytics.storage.cache_folder`."""

_COPY_MODES: Final = frozenset({COPY_MODE, 0o500})  # 0o500: made by earlier versions

REMEDY: Final = "run `countersign audit restore-segment`"
_HASHERS: Final = min(4, os.cpu_count() or 1)
_STEP_BYTES: Final = 128 * 2**10
"""Measured on a first file of 770 KB: 1 MiB, which needs new pages, takes half as long again."""

FileStamp = tuple[int, ...]
"""Values that differ for another file, and for the same file after it was written to."""


class DamagedFile(StoreFault):
    """A file that does not have the size and digest that the catalog says."""


class WrongSize(DamagedFile):
    """A file of another size."""


class WrongDigest(DamagedFile):
    """A file with other bytes."""


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """One file of a segment, and what the catalog says of it ("" for a digest: nothing)."""

    path: Path
    size: int
    sha256: str


def rows_file(root: Path, segment: Segment) -> ExpectedFile:
    """The Parquet file of `segment` below the audit folder `root`."""
    return ExpectedFile(segment.path(root), segment.size, segment.sha256)


def index_file(root: Path, segment: Segment) -> ExpectedFile:
    """The index of `segment` below the audit folder `root`."""
    return ExpectedFile(segment.index_path(root), segment.index_size, segment.index_sha256)


def no_wait(size: int) -> None:
    """Let a file be read at full speed."""


def verify_file(file: ExpectedFile, on_read: Callable[[int], object] = no_wait) -> FileStamp:
    """The identity of `file`, all of whose bytes are as the catalog says.

    `on_read` is called with the size of each part that was read; it may wait, to read slowly.
    Raises WrongSize, WrongDigest, and StoreFault for a file that cannot be read.
    """
    try:
        with file.path.open("rb", buffering=0) as opened:
            # Before the first byte: what is changed while it is read has another identity then.
            status = os.fstat(opened.fileno())
            if status.st_size != file.size:
                raise WrongSize(f"{file.path}: {status.st_size} bytes instead of {file.size}")
            if file.sha256:
                digest = hashlib.sha256()
                while part := opened.read(_STEP_BYTES):
                    digest.update(part)
                    on_read(len(part))
                if (sha256 := digest.hexdigest()) != file.sha256:
                    raise WrongDigest(
                        f"{file.path}: damaged: its SHA-256 is {sha256} instead of {file.sha256}:"
                        f" {REMEDY}"
                    )
    except OSError as error:
        raise StoreFault(f"{file.path}: {error.strerror}") from error
    return identity_of(status)


def is_copy(status: os.stat_result) -> bool:
    """Whether a file with this `status` is a copy of what a bucket has."""
    return S_IMODE(status.st_mode) in _COPY_MODES


def identity_of(status: os.stat_result) -> FileStamp:
    """The identity of a file with this `status`."""
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    # A copy in a cache gets another time of change whenever a process notes that it uses it.
    return identity if is_copy(status) else (*identity, status.st_ctime_ns)


class VerifiedFiles:
    """Files that this process has verified. Safe to use from several threads."""

    def __init__(self, files_max: int = VERIFIED_MAX) -> None:
        self._known = LRUCache[ExpectedFile, FileStamp](files_max)
        self._reading = WeakValueDictionary[ExpectedFile, Lock]()
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(_HASHERS, "verify")

    def check(
        self, files: Iterable[ExpectedFile], on_read: Callable[[int], object] = no_wait
    ) -> None:
        """Raise DamagedFile or StoreFault unless each of `files` is as the catalog says.

        Only those are read that are new to this process or have changed since it read them, several
        at a time; for `on_read` see `verify_file`. What it raises ends the check.
        """
        unknown = deque(file for file in files if not self.knows(file))
        if len(unknown) == 1:
            self._verify(unknown.popleft(), on_read)
        coming: deque[Future[None]] = deque()
        try:
            while unknown or coming:
                # No more: the threads are those of all queries.
                while unknown and len(coming) < _HASHERS:
                    coming.append(self._begin(unknown.popleft(), on_read))
                coming.popleft().result()
        finally:
            for verified in coming:
                verified.cancel()

    @contextmanager
    def unchanged(
        self, files: Sequence[ExpectedFile], on_read: Callable[[int], object] = no_wait
    ) -> Iterator[None]:
        """`check` before the block, and again after it: for readers that compare no checksums."""
        self.check(files, on_read)
        yield
        self.check(files, on_read)

    def knows(self, file: ExpectedFile) -> bool:
        """Whether `file` is there, and was verified in its present state."""
        with self._lock:
            known = self._known.get(file)
        try:
            return known is not None and known == identity_of(file.path.stat())
        except OSError:  # `verify_file` names the file and the reason
            return False

    def add(self, file: ExpectedFile) -> None:
        """Remember the `file` that is in place and was verified before it got its name."""
        self._keep(file, identity_of(file.path.stat()))

    def close(self) -> None:
        """Begin no further verification."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, file: ExpectedFile, on_read: Callable[[int], object]) -> Future[None]:
        try:
            return self._threads.submit(self._verify, file, on_read)
        except RuntimeError as error:
            raise StoreUnreachable("the store of segments was closed") from error

    def _verify(self, file: ExpectedFile, on_read: Callable[[int], object]) -> None:
        with self._lock:
            reading = self._reading.setdefault(file, Lock())
        with reading:
            # Another thread may have verified it during the wait.
            if not self.knows(file):
                self._keep(file, verify_file(file, on_read))

    def _keep(self, file: ExpectedFile, identity: FileStamp) -> None:
        with self._lock:
            self._known[file] = identity
