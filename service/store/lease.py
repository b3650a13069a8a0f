"""Leases: one process at a time seals, changes segments in other ways, signs, verifies, alerts.

A lease consists of two locks. A lock on a file in the data dir excludes other processes over that
data dir and is released when its holder ends. A row in the database excludes the processes over
other data dirs, on this machine or another. It expires by the clock of write transactions, which
nodes share, and carries an epoch by which a commit verifies that its lease is still the current
one: a holder that was paused for too long commits nothing.
"""

import asyncio
import fcntl
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar, cast

from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from service.core.errors import Refusal
from service.core.ids import new_id
from service.store.store import Store, SyncUnitOfWork, UnitOfWork
from service.store.tables import Lease
from service.store.transaction import Transaction, within

SEGMENTS: Final = "segments"
"""The lease to merge, import, index, publish, prune and remove segments."""
SEAL: Final = "seal"
"""The lease to seal: apart, because a full journal must not wait until a merge has ended."""
EVIDENCE: Final = "evidence"
"""The lease to let trees of rows grow, and to sign checkpoints."""
RETRO: Final = "retro"
"""The lease to compare past installs with new advisories and rules."""
ALERTS: Final = "alerts"
"""The lease to evaluate alert rules: none fires twice."""
SCRUB: Final = "scrub"
"""The lease to verify segments in the background, so that nodes share the work."""

STREAMS: Final = "streams"
"""The lease to send rows to receivers."""

_POLL_S: Final = 0.2
_RENEWALS: Final = 3
"""How often `HeldLease.renewed` renews the lease within its lifetime."""

_MARK: Final = re.compile(r"lock_[0-9a-z]{16}")
_MARK_BYTES: Final = 64
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEASES: Final = cast("Table", Lease.__table__)
_OF_NAME: Final = Lease.name == bindparam("of_name")
_TAKEN: Final = {
    "holder": bindparam("by"),
    "epoch": bindparam("new_epoch"),
    "expires_at": bindparam("until", type_=Lease.expires_at.type),
}
_FIND: Final = select(Lease.holder, Lease.epoch, Lease.expires_at).where(_OF_NAME)
_ADD: Final = insert(_LEASES).values(name=bindparam("of_name"), **_TAKEN)
_TAKE: Final = update(_LEASES).where(_OF_NAME).values(**_TAKEN)
_EXTEND: Final = (
    update(_LEASES)
    .where(
        Lease.name == bindparam("of_name"),
        Lease.holder == bindparam("of_holder"),
        Lease.epoch == bindparam("of_epoch"),
    )
    .values(expires_at=bindparam("until", type_=Lease.expires_at.type))
    .returning(Lease.epoch)
)
_Result = TypeVar("_Result")


class LeaseTaken(Refusal):
    """Another process is changing segments right now."""

    status = 503
    text = "another process is changing segments; try again"
    is_temporary = True


class LeaseLost(Exception):
    """Another process has taken over the lease; the pending change must not be committed."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """The right to change segments, until it expires or another process takes it over."""

    name: str
    holder: str
    epoch: int
    lifetime: timedelta
    store: Store

    @asynccontextmanager
    async def write(self) -> AsyncIterator[UnitOfWork]:
        """As `Store.write`, under this lease; every change of segments commits through it.

        Raises LeaseLost, before the block, if the lease is lost; a commit extends it.
        """
        async with self.store.write() as work:
            # In the same transaction: a takeover needs the write lock, and waits for the commit.
            await self.confirm(work)
            yield work

    async def write_at_once(self, change: Callable[[SyncUnitOfWork], _Result]) -> _Result:
        """As `Store.write_at_once`, under this lease: see `write`."""

        def run(work: SyncUnitOfWork) -> _Result:
            self._extend(work.transaction, work.now)
            return change(work)

        return await self.store.write_at_once(run)

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renew the lease during the block, which may take longer than it lasts."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.lifetime.total_seconds() / _RENEWALS)
                await self.write_at_once(lambda work: None)

        renewal = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewal.cancel()
            # If the lease was lost, the next commit says so.
            await asyncio.gather(renewal, return_exceptions=True)

    async def confirm(self, work: UnitOfWork) -> None:
        """Extend the lease in a transaction of another one. Raises LeaseLost."""
        await within(work.session, self._extend, work.now)

    def _extend(self, transaction: Transaction, now: datetime) -> None:
        own = {"of_name": self.name, "of_holder": self.holder, "of_epoch": self.epoch}
        if not transaction.rows(_EXTEND, {**own, "until": now + self.lifetime}):
            raise LeaseLost


async def revoke(work: UnitOfWork, name: str) -> None:
    """End the lease `name`: what its holder has not committed yet, it never will."""
    await work.session.execute(
        update(Lease)
        .where(Lease.name == name)
        .values(holder="", epoch=Lease.epoch + 1, expires_at=work.now)
    )


async def end_leases(connection: AsyncSession | AsyncConnection) -> None:
    """Expire all leases of a restored database by any clock: their holders do not run here."""
    await connection.execute(update(Lease).values(holder="", expires_at=_LONG_AGO))


def _place_of(descriptor: int) -> str:
    """Identifies the lock file, which is locked: no other file, nor a copy of it, has the same.

    The host and the inode tell it from copies. The mark, written by the first holder, tells it from
    files of the same inode number elsewhere: hosts of containers may share a name.
    """
    mark = os.pread(descriptor, _MARK_BYTES, 0).decode(errors="replace")
    if not _MARK.fullmatch(mark):
        mark = new_id("lock")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, mark.encode(), 0)
    return f"{socket.gethostname()}/{os.fstat(descriptor).st_ino:x}-{mark}/"


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LeaseTaken from error


class LeaseKeeper:
    """Acquires and releases the lease `name` for this process."""

    def __init__(
        self, store: Store, data_dir: Path, lifetime: timedelta, name: str = SEGMENTS
    ) -> None:
        self._store = store
        self._name = name
        self._lock_file = data_dir / f"{name}.lock"
        self._lifetime = lifetime

    @asynccontextmanager
    async def hold(self, wait_s: float = 0.0) -> AsyncIterator[HeldLease]:
        """Hold the lease during the block.

        Raises LeaseTaken if another process still holds it after `wait_s`.
        """
        give_up_at, is_held = time.monotonic() + wait_s, False
        while True:
            try:
                async with self._hold() as held:
                    is_held = True
                    yield held
                return
            except LeaseTaken:
                if is_held or time.monotonic() >= give_up_at:
                    raise
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[HeldLease]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Before the row: with this lock a holder of the same place is known to have ended.
            _lock(descriptor)
            held = await self._take(_place_of(descriptor))
            yield held
            await self._give_back(held)
        finally:
            os.close(descriptor)  # releases the file lock

    async def _take(self, place: str) -> HeldLease:
        """Take the row. A holder of the same place has ended, because we hold its file lock."""
        holder = f"{place}{os.getpid()}/{new_id('lease')}"

        def take(work: SyncUnitOfWork) -> int:
            found = work.transaction.rows(_FIND, {"of_name": self._name})
            before, epoch, expires_at = found[0] if found else ("", 0, work.now)
            if expires_at > work.now and not before.startswith(place):
                raise LeaseTaken
            taken = {"by": holder, "new_epoch": epoch + 1, "until": work.now + self._lifetime}
            work.transaction.run(_TAKE if found else _ADD, [{"of_name": self._name, **taken}])
            return int(epoch) + 1

        epoch = await self._store.write_at_once(take)
        return HeldLease(self._name, holder, epoch, self._lifetime, self._store)

    async def _give_back(self, held: HeldLease) -> None:
        with suppress(LeaseLost):  # by epoch: that of a process that has taken over goes on
            await replace(held, lifetime=timedelta(0)).write_at_once(lambda work: None)
