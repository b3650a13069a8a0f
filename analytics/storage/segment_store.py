"""Where segments are kept: the one seam between the audit lake and a folder or an object store.

Readers open local files only, in the layout of `analytics.storage.layout`. With a `LocalFolder`
these files are the segments. With S3 (`analytics.storage.s3_segments`) they are a cache of them.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from analytics.model.errors import StoreFault
from analytics.storage import audit_files
from analytics.storage.cache_folder import CachedFile
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import check_present
from analytics.storage.segment_writer import (
    NewSegment,
    place_segment,
    remove_segments,
    write_segments,
)
from analytics.storage.verified_files import (
    DamagedFile,
    ExpectedFile,
    VerifiedFiles,
    no_wait,
    rows_file,
    verify_file,
)

Write = Callable[[Path], Segment]
"""Writes a segment (or only its index) below the folder it is given, in the usual layout."""


class ObjectMissing(StoreFault):
    """The file or object of a segment is not in the store."""


class ObjectDamaged(DamagedFile):
    """The object of a segment does not have the size and digest that the catalog says."""


class Overtaken(Exception):
    """Files that no catalog names may have been removed as orphans: they must not be named."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the store; `path` is its place in the layout below `SegmentStore.root`.

    `size` is in bytes, `written_s` in seconds since 1970 by the clock of the store.
    """

    path: Path
    size: int
    written_s: float


class Claim(Protocol):
    """Keeps the segments of unfinished work from being swept, beyond the grace of orphans."""

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """As `SegmentStore.put_rows`; they are kept as long as the claim is renewed."""

    def renew(self, segments: Sequence[Segment], now_s: float) -> None:
        """Keep `segments`, put under this claim, for another grace. Raises Overtaken."""

    def remove(self, segments: Sequence[Segment]) -> None:
        """Remove `segments`, put under this claim and never to be in the catalog."""

    def release(self) -> None:
        """End the claim: the segments are in the catalog, or removed."""


class SegmentStore(Protocol):
    """The files of segments, and of the indexes beside them. Every method may raise StoreFault.

    Methods may be called from several threads. What has an implementation here is for a store whose
    files are all local.
    """

    root: Path
    """The folder that readers open files in."""

    is_local: bool
    """True if every file is there without being fetched."""

    def local(
        self, segments: Iterable[Segment], on_read: Callable[[int], object] = no_wait
    ) -> AbstractContextManager[None]:
        """In the block the files of `segments` are whole and stay where they are.

        `on_read` is called while they are verified, see `verify_file`. At the end of the block it
        is made sure that they still are what was verified. Raises ObjectMissing, DamagedFile.
        """

    def local_index(self, segment: Segment) -> AbstractContextManager[None]:
        """In the block the index of `segment` stays where it is; it may be missing or damaged."""
        return nullcontext()

    def fetch_ahead(self, segments: Sequence[Segment]) -> None:
        """Begin to make the files of `segments` local; what fails is tried again by `local`."""
        return

    def fetch_indexes(self, segments: Sequence[Segment]) -> None:
        """Make local those indexes of `segments` that exist, several at a time."""
        return

    def check_present(self, segments: Sequence[Segment]) -> None:
        """Raise StoreFault unless each of `segments` is stored, with its size."""

    def list_missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """Those of `segments` that are not stored in their place, or have another size."""

    def as_stored(self, segment: Segment) -> AbstractContextManager[Path]:
        """A folder like `root` with the files of `segment` as the store has them, for a check.

        What is missing in the store is missing there.
        """

    def verify(self, file: ExpectedFile, on_read: Callable[[int], object]) -> None:
        """Raise a StoreFault unless `file`, below `root`, is stored as the catalog says.

        The store itself is read: no copy, nor what the system caches. For `on_read` see
        `verify_file`. Raises ObjectMissing, DamagedFile, StoreUnreachable.
        """

    def put(self, write: Write) -> Segment:
        """Store the new segment that `write` writes; it is durable when this returns."""

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """Store the new `segments`; they are durable when this returns."""

    def restore(self, segment: Segment, source: Path) -> None:
        """Put the verified file `source` in place of the file of `segment`, missing or damaged.

        It is durable when this returns. Only under the lease, so that the segment is not removed.
        """

    def put_index(self, write: Write) -> Segment:
        """Store the index that `write` writes, replacing an existing one."""

    def delete(self, segments: Sequence[Segment]) -> None:
        """Remove the files of `segments`, which no reader can find; missing ones are no fault."""

    def list_files(self, tenant_id: str | None = None) -> list[StoredFile]:
        """Every file in the store (or of one tenant), wherever it lies."""

    def is_there(self, path: Path) -> bool:
        """Whether the listed file at `path` is still in the store."""

    def clock_s(self, now_s: float) -> float:
        """The time by the clock of the store, or `now_s`, the caller's, if it has none."""
        return now_s

    def claimed(self, grace_s: float) -> set[str]:
        """The ids of segments under a claim that was renewed within `grace_s` seconds.

        To be read after the files were listed and before the catalog. Claims on files of a folder
        renew the files themselves.
        """
        return set()

    def remove_orphans(
        self,
        files: Sequence[StoredFile],
        known: Collection[str],
        now_s: float,
        grace_s: float,
    ) -> int:
        """Remove those of `files` that no known segment has, `grace_s` after they were written.

        Returns how many were removed. `now_s` was read by `clock_s` before `files` were listed, and
        these were listed before `known` (ids) was read: however long the caller was paused since,
        what was young then is not removed.
        """

    def claim(self, grace_s: float) -> Claim:
        """A claim for work that may take longer than `grace_s`, the grace of orphans."""

    def copies(self) -> list[CachedFile]:
        """The local copies of what is stored elsewhere."""
        return []

    def drop_copies(self, copies: Sequence[CachedFile], known: Collection[str]) -> int:
        """Drop those of `copies` that are of no segment in `known`; returns how many.

        `copies` were listed before `known` (ids) was read.
        """
        return 0

    def verify_copy(
        self, copy: CachedFile, segment: Segment, on_read: Callable[[int], object]
    ) -> bool:
        """Whether `copy`, of a file of `segment`, is whole; otherwise it is dropped.

        `on_read` as for `verify`.
        """
        return True

    def close(self) -> None:
        """Release what the store holds."""


class LocalFolder(SegmentStore):
    """Segments in a folder of this machine: what is stored is what is read."""

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified = VerifiedFiles()

    @contextmanager
    def local(
        self, segments: Iterable[Segment], on_read: Callable[[int], object] = no_wait
    ) -> Iterator[None]:
        """See SegmentStore: all files are local until the sweeper unlinks them."""
        files = [rows_file(self.root, segment) for segment in segments]
        with self._verified.unchanged(files, on_read):
            yield

    def check_present(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        check_present(self.root, segments)

    def list_missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """See SegmentStore."""
        return audit_files.list_missing(self.root, segments)

    @contextmanager
    def as_stored(self, segment: Segment) -> Iterator[Path]:
        """See SegmentStore."""
        yield self.root

    def verify(self, file: ExpectedFile, on_read: Callable[[int], object]) -> None:
        """See SegmentStore. A damaged file is verified again by all processes that use it."""
        with suppress(OSError):
            _drop_from_page_cache(file.path)
        try:
            verify_file(file, on_read)
        except DamagedFile:
            with suppress(OSError):
                # Its bytes may have changed without its times, by which processes know it.
                os.utime(file.path)
            raise

    def put(self, write: Write) -> Segment:
        """See SegmentStore."""
        return write(self.root)

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """See SegmentStore."""
        return write_segments(self.root, segments)

    def restore(self, segment: Segment, source: Path) -> None:
        """See SegmentStore."""
        place_segment(self.root, segment, source)

    def put_index(self, write: Write) -> Segment:
        """See SegmentStore."""
        return write(self.root)

    def delete(self, segments: Sequence[Segment]) -> None:
        """See SegmentStore."""
        remove_segments(self.root, segments)

    def list_files(self, tenant_id: str | None = None) -> list[StoredFile]:
        """See SegmentStore."""
        files = []
        for path in audit_files.list_files(self.root, tenant_id):
            try:
                status = path.lstat()
            except FileNotFoundError:  # renamed or removed since it was listed
                continue
            files.append(StoredFile(path, status.st_size, status.st_mtime))
        return files

    def is_there(self, path: Path) -> bool:
        """See SegmentStore."""
        return path.exists()

    def remove_orphans(
        self,
        files: Sequence[StoredFile],
        known: Collection[str],
        now_s: float,
        grace_s: float,
    ) -> int:
        """See SegmentStore."""
        return audit_files.remove_orphans(
            self.root, [file.path for file in files], known, now_s - grace_s
        )

    def claim(self, grace_s: float) -> Claim:
        """See SegmentStore."""
        return _TouchedFiles(self.root)

    def close(self) -> None:
        """See SegmentStore."""
        self._verified.close()


def _drop_from_page_cache(path: Path) -> None:
    """Have the next reader get the bytes that the disk has, which may differ from cached ones."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class _TouchedFiles:
    """A claim on files of a folder: their times of writing are renewed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_rows(self, segments: Sequence[NewSegment]) -> list[Segment]:
        """See Claim."""
        return write_segments(self._root, segments)

    def renew(self, segments: Sequence[Segment], now_s: float) -> None:
        """See Claim."""
        try:
            audit_files.renew_segments(self._root, segments, now_s)
        except FileNotFoundError as error:
            raise Overtaken from error

    def remove(self, segments: Sequence[Segment]) -> None:
        """See Claim."""
        remove_segments(self._root, segments)

    def release(self) -> None:
        """See Claim: files without renewal are swept."""


def awake_s() -> float:
    """Seconds by a clock that cannot be set, and that runs on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
