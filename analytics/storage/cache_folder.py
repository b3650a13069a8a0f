"""A folder of copies, bounded in bytes, that several processes of one machine use together.

The copies have the paths that segments have in a local folder, so readers need not tell them apart.
A file is a copy if its mode is COPY_MODE (`is_copy`), and no other file is ever dropped. So the
segments of a data dir that had no object store before stay until they are uploaded.

- Copies are not synced: a power failure may leave other bytes under their names. So each process
  hashes a copy that it did not fetch itself before it uses it (see `verified_files`).
- A copy in use is pinned: its slot is shared (see `slot_locks`), and only unused ones are dropped.
- Organisations have equal shares, see `drop_order`. The time of access says when a copy was last
  used. The time of writing does not change: DuckDB keeps what it read of a file until it does.
- The bytes of all copies are counted in the lock file. A process that drops copies counts again, so
  that the error left by a killed process does not last.
"""

import contextlib
import errno
import os
import secrets
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from analytics.storage.drop_order import drop_order
from analytics.storage.layout import OWN_FOLDER
from analytics.storage.slot_locks import ACCOUNT, DROPPING, SlotLocks, slot_of
from analytics.storage.verified_files import (
    COPY_MODE,
    DamagedFile,
    ExpectedFile,
    VerifiedFiles,
    is_copy,
)

_Result = TypeVar("_Result")

_NORMAL: Final = 0.9
"""Copies are dropped to this part of the bound; otherwise each new one would drop another."""

_USED_AGAIN_NS: Final = 60 * 10**9
"""A use that follows the last one within this time is not noted."""

_STALE_S: Final = 60.0
_COUNT: Final = struct.Struct("<q")


class CacheObserver:
    """Is told what the cache does, from several threads; this one counts nothing."""

    def hit(self, files: int) -> None:
        """So many files were in the cache when they were needed."""

    def fetched(self, size: int, seconds: float) -> None:
        """A file of `size` bytes was missing, and took `seconds` to fetch."""

    def dropped(self, files: int) -> None:
        """So many copies were dropped to make room."""


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A copy, its bytes, and when it was last used and written (nanoseconds since 1970)."""

    used_ns: int
    size: int
    path: Path
    written_ns: int = 0

    @property
    def owner(self) -> str:
        """The folder of the organisation."""
        return self.path.parent.parent.name


class CacheFolder:
    """Copies below `root`, of `bytes_max` bytes together unless more are in use at once.

    Methods may raise OSError. Safe to use from several threads and processes.
    """

    def __init__(self, root: Path, bytes_max: int, wait_s: float, observer: CacheObserver) -> None:
        self.root = root
        self.bytes_max = bytes_max
        self.verified = VerifiedFiles()
        self._observer = observer
        self._own = root / OWN_FOLDER
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._locks = SlotLocks(self._own / "locks", wait_s)
        _remove_stale(self._own)
        self._renewing = Lock()
        self._work, self._work_lock = self._new_work()
        # Two processes that start at once would both find no count, and each add all copies to it.
        with self._locks.one_at_a_time(DROPPING):
            self._begin()

    def pinned(self, names: Iterable[str]) -> AbstractContextManager[None]:
        """During the block no copy `<name>.<suffix>` of these `names` is dropped.

        A cache folder that was removed while this process runs is created again.
        """
        if not self._work.is_dir():
            self._renew()
        return self._locks.shared({slot_of(name) for name in names})

    def fetching(self, path: Path) -> AbstractContextManager[None]:
        """At most one thread of all processes fetches `path`; see `SlotLocks.one_at_a_time`."""
        return self._locks.one_at_a_time(str(path.relative_to(self.root)))

    def holds(self, file: ExpectedFile) -> bool:
        """Whether the pinned `file` is there, with the size and digest (unless it is "").

        Raises StoreFault for a file that cannot be read.
        """
        try:
            status = file.path.stat()
            # The pin keeps other processes from dropping the copy while it is hashed.
            self.verified.check([file])
        except (FileNotFoundError, DamagedFile):
            return False
        now_ns = time.time_ns()
        if is_copy(status) and now_ns - status.st_atime_ns > _USED_AGAIN_NS:
            with contextlib.suppress(OSError):
                # Only the order of dropping depends on this, so a failure must not fail the read.
                os.utime(file.path, ns=(now_ns, status.st_mtime_ns))
        return True

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A new folder for files that are not in place yet; removed at the end of the block."""
        if not self._work.is_dir():
            self._renew()
        folder = self._work / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def with_room(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, which fills a work folder; on a full disk it is tried twice.

        A full disk has less room than the setting says, so half of the copies are dropped first.
        """
        counted_before = self.used_bytes()
        try:
            return work()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
        with self._locks.one_at_a_time(DROPPING):
            if self.used_bytes() >= counted_before:  # no other thread or process did it meanwhile
                self.drop_to(self.used_bytes() // 2)
        return work()

    def add(self, source: Path, target: Path) -> None:
        """Move the whole file `source` of a work folder to `target`, as a copy."""
        size = source.stat().st_size
        self.make_room(size)
        self._count(size)  # before the file is there: rather too much than too little
        # Before the rename: a file that had its name without this mode would never be dropped.
        source.chmod(COPY_MODE)
        before = _size_of(target)
        while True:
            try:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                source.rename(target)
                break
            except FileNotFoundError:  # the folder was empty, and another process removed it
                if not source.exists():
                    raise
        # The rename replaced a copy that was counted already.
        self._count(-before)

    def keep(self, path: Path) -> None:
        """Treat the file at `path` as a copy from now on."""
        counted = _size_of(path)
        path.chmod(COPY_MODE)
        self._count(path.stat().st_size - counted)

    def is_copy(self, path: Path) -> bool:
        """Whether `path` is a copy. Raises FileNotFoundError."""
        return is_copy(path.stat())

    def remove(self, path: Path) -> None:
        """Remove the file at `path` if it is there, in use or not."""
        with contextlib.suppress(FileNotFoundError):
            size = path.stat().st_size if self.is_copy(path) else 0
            # Before the count: of two that remove a file, one fails here and subtracts nothing.
            path.unlink()
            self._count(-size)

    def make_room(self, size: int) -> None:
        """Drop unused copies until there is room for `size` more bytes, or none is left."""
        if self.used_bytes() + size > self.bytes_max:
            with self._locks.one_at_a_time(DROPPING):
                if self.used_bytes() + size > self.bytes_max:  # no other process did it meanwhile
                    self.drop_to(max(0, int(self.bytes_max * _NORMAL) - size))

    def drop_to(self, bytes_max: int) -> None:
        """Drop unused copies down to `bytes_max` bytes, in the order of `drop_order`."""
        counted_before = self.used_bytes()
        copies = self.copies()
        left = sum(copy.size for copy in copies)
        dropped = 0
        for copy in drop_order(copies, time.time_ns()):
            if left <= bytes_max:
                break
            if self._drop(copy.path):
                left -= copy.size
                dropped += 1
        self._observer.dropped(dropped)
        # What others added since the beginning stays counted.
        self._count(left - counted_before)

    def drop(self, copies: Iterable[CachedFile]) -> int:
        """Drop those of `copies` that are not in use; return how many."""
        dropped = 0
        for copy in copies:
            if self._drop(copy.path):
                self._count(-copy.size)
                dropped += 1
        return dropped

    def copies(self) -> list[CachedFile]:
        """All copies in the folder."""
        copies = []
        for folder, names, files in os.walk(self.root):
            if Path(folder) == self.root:
                # Unfinished downloads in the own folder must be neither counted nor dropped.
                names[:] = [name for name in names if name.startswith("tenant=")]
                continue
            for name in files:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    if is_copy(status):
                        times = status.st_atime_ns, status.st_mtime_ns
                        copies.append(CachedFile(times[0], status.st_size, path, times[1]))
        return copies

    def close(self) -> None:
        """Release the locks, and remove what is still being written."""
        self.verified.close()
        if self._work_lock >= 0:
            # Before the lock is released: after that another process may take the folder for stale.
            shutil.rmtree(self._work, ignore_errors=True)
            os.close(self._work_lock)
            self._work_lock = -1
            self._locks.close()

    def used_bytes(self) -> int:
        """The bytes of all copies, by the count in the lock file."""
        content = self._locks.read(_COUNT.size)
        return int(_COUNT.unpack(content)[0]) if len(content) == _COUNT.size else 0

    def _new_work(self) -> tuple[Path, int]:
        """A new folder for this process's work, and the lock by which others see that it runs."""
        name = secrets.token_hex(8)
        new, work = self._own / f"new-{name}", self._own / f"work-{name}"
        new.mkdir(mode=0o700)
        descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        _flock(descriptor)
        new.rename(work)  # once it is locked: others remove work that is not
        return work, descriptor

    def _renew(self) -> None:
        """Create the removed folders again, and count the copies that are left."""
        with self._renewing:
            if self._work_lock < 0 or self._work.is_dir():
                return
            self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._locks.renew()
            former = self._work_lock
            self._work, self._work_lock = self._new_work()
            # Only once the new folder is locked: this process must not look ended in between.
            os.close(former)
            with self._locks.one_at_a_time(DROPPING):
                self._begin()

    def _begin(self) -> None:
        """Count the copies if no count is kept."""
        if not self._locks.read(_COUNT.size):
            self._count(sum(copy.size for copy in self.copies()))

    def _drop(self, path: Path) -> bool:
        with self._locks.unused(slot_of(path.stem)) as is_free:
            if not is_free:
                return False
            # Under the exclusive lock: who pins the name later finds it gone, and fetches it.
            try:
                path.unlink()
            except FileNotFoundError:  # another process dropped it, and counted that
                return False
        for folder in (path.parent, path.parent.parent):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
        return True

    def _count(self, size: int) -> None:
        if size:
            with self._locks.one_at_a_time(ACCOUNT):
                self._locks.write(_COUNT.pack(self.used_bytes() + size))


def _size_of(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return status.st_size if is_copy(status) else 0


def _flock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_stale(own: Path) -> None:
    """Remove the work folders of processes that have ended, and so no longer lock them."""
    for folder in (*own.glob("work-*"), *own.glob("new-*")):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # A new one that was made just now may not be locked yet.
                is_locked_if_used = folder.name.startswith("work-") or (
                    time.time() - folder.stat().st_mtime > _STALE_S
                )
                if is_locked_if_used and _flock(descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
