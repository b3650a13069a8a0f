"""The lease: only one process at a time may add, merge or remove segments.

It consists of two locks. A lock on a file in the data dir excludes other processes of this machine
and is released when its holder ends. A row in the database excludes other machines, expires, and
carries an epoch by which a commit verifies that its lease is still the current one.
"""

import fcntl
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import update

from service.errors import Refusal
from service.ids import new_id
from service.store.store import Store, UnitOfWork
from service.store.tables import Lease

_NAME: Final = "segments"
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
            await self._confirm(work)
            yield work

    async def _confirm(self, work: UnitOfWork) -> None:
        extended = await work.session.scalar(
            update(Lease)
            .where(Lease.name == _NAME, Lease.holder == self.holder, Lease.epoch == self.epoch)
            .values(expires_at=work.now + self.lifetime)
            .returning(Lease.epoch)
        )
        if extended is None:
            raise LeaseLost


async def end_leases(work: UnitOfWork) -> None:
    """Expire all leases of a restored database by any clock: their holders do not run here."""
    await work.session.execute(update(Lease).values(holder="", expires_at=_LONG_AGO))


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LeaseTaken from error


class LeaseKeeper:
    """Acquires and releases the lease for this process."""

    def __init__(self, store: Store, data_dir: Path, lifetime: timedelta) -> None:
        self._store = store
        self._lock_file = data_dir / "segments.lock"
        self._lifetime = lifetime
        self._host = socket.gethostname()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[HeldLease]:
        """Hold the lease during the block. Raises LeaseTaken while another process holds it."""
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            held = await self._take()
            yield held
            await self._give_back(held)
        finally:
            os.close(descriptor)  # releases the file lock

    async def _take(self) -> HeldLease:
        holder = f"{self._host}/{os.getpid()}/{new_id('lease')}"
        async with self._store.write() as work:
            lease = await work.session.get(Lease, _NAME)
            if lease is None:
                lease = Lease(name=_NAME, holder="", epoch=0, expires_at=work.now)
                work.session.add(lease)
            elif lease.expires_at > work.now and not self._is_ours(lease.holder):
                raise LeaseTaken
            lease.holder = holder
            lease.epoch += 1
            lease.expires_at = work.now + self._lifetime
            return HeldLease(holder, lease.epoch, self._lifetime, self._store)

    async def _give_back(self, held: HeldLease) -> None:
        async with self._store.write() as work:
            await work.session.execute(
                update(Lease)
                .where(Lease.name == _NAME, Lease.epoch == held.epoch)
                .values(expires_at=work.now)
            )

    def _is_ours(self, holder: str) -> bool:
        """True for a holder on this machine: it has ended, because we hold its file lock."""
        return holder.startswith(f"{self._host}/")
