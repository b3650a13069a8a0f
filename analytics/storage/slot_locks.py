"""Locks that processes of one machine share, on the bytes of one file.

Open file description locks (fcntl, Linux): those of a killed process are released. Each name has a
byte of the file; two names that happen to have the same byte wait for each other.
"""

import errno
import fcntl
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from analytics.model.errors import StoreFault, StoreUnreachable

SLOTS: Final = 65_536
_FIRST_BYTE: Final = 2**20
"""Where the slots begin; the bytes before are for the contents of the file."""

_STRIPES: Final = 1_024
_STRIPES_FROM: Final = _FIRST_BYTE + SLOTS
ACCOUNT: Final = "account"
DROPPING: Final = "dropping"
RESERVED: Final = (DROPPING, ACCOUNT)
"""Names whose blocks may be nested in those of other names, and a later in an earlier one."""

_ASK_AGAIN_S: Final = 0.002
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: kind, whence, start, length, process id (0)."""

_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES})


class LockTimeout(StoreUnreachable):
    """Another process holds the lock, and does not release it."""


def slot_of(name: str) -> int:
    """The slot of `name`; others may have it too."""
    return zlib.crc32(name.encode()) % SLOTS


def _stripe_of(name: str) -> int:
    if name in RESERVED:
        return RESERVED.index(name)
    return len(RESERVED) + zlib.crc32(name.encode()) % (_STRIPES - len(RESERVED))


class SlotLocks:
    """Locks on the file at `path`, which is created. Safe to use from several threads.

    A slot is shared by those that use something, and exclusive for the one that removes it. Within
    this process an exclusive lock is not granted while the slot is shared either.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        """Locks are waited for during `wait_s` seconds. Raises StoreFault."""
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise StoreFault("a cache of segments needs Linux: it has the locks for it")
        self._path = path
        self._descriptor = self._open()
        self._wait_s = wait_s
        self._mutex = Lock()
        self._shared: Counter[int] = Counter()
        self._stripes = [Lock() for _ in range(_STRIPES)]

    @contextmanager
    def shared(self, slots: Collection[int]) -> Iterator[None]:
        """Share `slots` during the block. Raises LockTimeout."""
        taken: list[int] = []
        try:
            with self._mutex:
                for slot in slots:
                    # The first user locks a slot and the last unlocks it: file locks are not
                    # counted.
                    if not self._shared[slot]:
                        self._wait_for(fcntl.F_RDLCK, _FIRST_BYTE + slot)
                    self._shared[slot] += 1
                    taken.append(slot)
            yield
        finally:
            with self._mutex:
                for slot in taken:
                    self._shared[slot] -= 1
                    if not self._shared[slot]:
                        del self._shared[slot]
                        self._set(fcntl.F_UNLCK, _FIRST_BYTE + slot)

    def renew(self) -> None:
        """Open the file at the path again if it was removed: other processes lock a new one.

        Slots that are shared are shared there, too. Raises OSError, LockTimeout.
        """
        with self._mutex:
            if self._descriptor < 0 or self._is_in_place():
                return
            former, self._descriptor = self._descriptor, self._open()
            try:
                for slot in self._shared:
                    self._wait_for(fcntl.F_RDLCK, _FIRST_BYTE + slot)
            except BaseException:
                # The old file, on which the slots are locked, stays; the new one is closed.
                former, self._descriptor = self._descriptor, former
                raise
            finally:
                os.close(former)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def unused(self, slot: int) -> Iterator[bool]:
        """Whether `slot` is unused; if so, it stays so during the block, which must be short."""
        with self._mutex:
            place = _FIRST_BYTE + slot
            # The file's locks do not exclude threads of this process, so their count is asked, too.
            is_free = not self._shared[slot] and self._try(fcntl.F_WRLCK, place)
            try:
                yield is_free
            finally:
                if is_free:
                    self._set(fcntl.F_UNLCK, place)

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[None]:
        """At most one thread of all processes is in such a block of `name`.

        If another process takes longer than `wait_s`, this block runs all the same: it is for work
        that may be done twice. Blocks of several names may only be nested as RESERVED says.
        """
        stripe = _stripe_of(name)
        # The file's lock excludes other processes; within this one it is granted to every thread.
        with self._stripes[stripe]:
            place = _STRIPES_FROM + stripe
            try:
                self._wait_for(fcntl.F_WRLCK, place)
            except LockTimeout:
                yield
                return
            try:
                yield
            finally:
                self._set(fcntl.F_UNLCK, place)

    def read(self, length: int) -> bytes:
        """The first `length` bytes of the file, or all if it is shorter."""
        # Another thread may renew or close: the number could be another file's a moment later.
        with self._mutex:
            return os.pread(self._descriptor, length, 0) if self._descriptor >= 0 else b""

    def write(self, content: bytes) -> None:
        """Write the first bytes of the file."""
        with self._mutex:
            if self._descriptor >= 0:
                os.pwrite(self._descriptor, content, 0)

    def close(self) -> None:
        """Release all locks; threads that still run get no others."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _wait_for(self, kind: int, place: int) -> None:
        ends_at = time.monotonic() + self._wait_s
        while not self._try(kind, place):
            if time.monotonic() >= ends_at:
                raise LockTimeout("another process holds a lock on the cache and does not go on")
            time.sleep(_ASK_AGAIN_S)

    def _try(self, kind: int, place: int) -> bool:
        try:
            self._set(kind, place)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def _set(self, kind: int, place: int) -> None:
        if self._descriptor < 0:
            if kind == fcntl.F_UNLCK:
                return
            raise LockTimeout("the cache of segments was closed")
        lock = _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, lock)
