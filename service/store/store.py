"""Units of work: a change and the audit rows that record it commit together or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from analytics.cache.lru import ByteCache
from analytics.model.events import Envelope
from analytics.model.rows import AuditContext, audit_row
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.snapshot import Snapshot
from service.clock import Clock
from service.store.commit_cache import CommitCache
from service.store.engine import Engines
from service.store.faults import store_faults
from service.store.journal import last_seq
from service.store.journal_writer import JournalWriter
from service.store.snapshots import LINE_BYTES, keep_batches, snapshot, snapshot_size
from service.store.tables import Counter
from service.store.transaction import Transaction, within

KEPT_BYTES_MAX: Final = 64 * 2**20
"""What snapshots may keep of catalog lines and journal batches that they have read."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class UnitOfWork:
    """One open write transaction: its session, its instant, and the rows it will journal."""

    session: AsyncSession
    now: datetime
    journal: JournalWriter = field(default_factory=JournalWriter)

    def record(
        self,
        tenant_id: str,
        envelope: Envelope,
        audit_context: AuditContext,
        *,
        subject: str | None = None,
    ) -> None:
        """Add an audit row to what this transaction commits."""
        self.journal.add(tenant_id, [audit_row(envelope, audit_context, self.now, subject=subject)])

    def recorded_events(self) -> list[str]:
        """The events recorded so far, organisation by organisation."""
        return self.journal.events()

    async def journal_rows(self) -> None:
        """Give all rows their seq and store them; the last step before the commit."""
        await within(self.session, self.journal.write, self.now)


@dataclass(frozen=True, slots=True)
class SyncUnitOfWork:
    """The same for synchronous code, which runs to its end before anything else is done."""

    transaction: Transaction
    now: datetime
    journal: JournalWriter = field(default_factory=JournalWriter)


class Store:
    """The database, as transactions. A database that does not answer is StoreUnavailable."""

    def __init__(self, engines: Engines, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._cache = CommitCache(engines.watch)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """One read transaction: every query in it sees the same instant of the database."""
        async with _session(self._engines.reader) as session, session.begin():
            yield session

    async def cached(
        self,
        key: Hashable,
        load: Callable[[AsyncSession], Awaitable[_Found]],
        size_of: Callable[[_Found], int] = lambda found: LINE_BYTES,
    ) -> _Found:
        """What `load` finds in a read transaction of now, or in one since which nothing changed.

        For what every request asks, see `CommitCache.get`: `key` and the database alone decide what
        it is, and whoever gets it shares it with others, and must not change it.
        """

        async def read() -> _Found:
            async with self.read() as session:
                return await load(session)

        return await self._cache.get(key, read, size_of)

    async def cached_at_once(self, key: Hashable, query: Callable[[Transaction], _Found]) -> _Found:
        """`cached` of what one short query finds."""
        return await self._cache.get(
            key, lambda: self.read_at_once(query), lambda found: LINE_BYTES
        )

    async def snapshot(self, tenant_id: str) -> Snapshot:
        """All audit rows of the tenant as of now."""

        async def load() -> Snapshot:
            return await self.read_at_once(partial(snapshot, tenant_id=tenant_id, kept=self._kept))

        return await self._cache.get(("snapshot", tenant_id), load, snapshot_size)

    async def last_seq(self) -> int:
        """The last seq given out to any tenant: while it stands still there is no new row."""
        return await self.cached_at_once("last_seq", last_seq)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[UnitOfWork]:
        """One write transaction; leaving the block commits it, durably, or rolls it back."""
        async with _session(self._engines.writer) as session, session.begin():
            await session.connection()  # waits for the write lock, so that now follows commit order
            work = UnitOfWork(session, self._clock())
            yield work
            await work.journal_rows()

    async def write_at_once(self, change: Callable[[SyncUnitOfWork], _Found]) -> _Found:
        """What `change` comes to in a write transaction, once that is durable.

        It runs in a thread where the database allows that, in one trip for all its statements.
        """

        def run(transaction: Transaction) -> tuple[_Found, list[JournalBatch]]:
            work = SyncUnitOfWork(transaction, self._clock())
            result = change(work)
            return result, work.journal.write(transaction, work.now)

        with store_faults():
            result, stored = await self._engines.write_at_once(run)
        # Not before the commit: after one that failed, other rows get the same seq.
        keep_batches(self._kept, stored)
        return result

    async def read_at_once(self, query: Callable[[Transaction], _Found]) -> _Found:
        """What `query` finds in a read transaction; in one trip, as `write_at_once`."""
        with store_faults():
            return await self._engines.read_at_once(query)

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the database answers."""
        async with self.read() as session:
            # A row, because SQLite answers a constant without looking at its file.
            await session.execute(select(Counter))

    async def close(self) -> None:
        """Close every connection."""
        await self._engines.dispose()


@asynccontextmanager
async def _session(engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    with store_faults():
        async with AsyncSession(engine, expire_on_commit=False) as session:
            yield session
