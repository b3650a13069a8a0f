"""Units of work: a change and the audit rows that record it commit together or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from analytics.cache.lru import ByteCache
from analytics.model.events import Envelope
from analytics.model.rows import AuditRow, Stamp, audit_row
from analytics.storage.journal_batches import EncodedBatch, encode_days
from analytics.storage.snapshot import Snapshot
from service.clock import Clock
from service.store.engine import Engines
from service.store.faults import store_faults
from service.store.journal import append_batches, count_journal, last_seq
from service.store.snapshots import LINE_BYTES, snapshot, snapshot_size
from service.store.standing import Standing
from service.store.tables import Counter

KEPT_BYTES_MAX: Final = 64 * 2**20
"""What snapshots may keep of catalog lines and journal batches that they have read."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Work:
    """One open write transaction: its session, its instant, and the rows it will journal."""

    session: AsyncSession
    now: datetime
    _rows: dict[str, list[AuditRow]] = field(default_factory=dict)
    _batches: list[tuple[str, EncodedBatch]] = field(default_factory=list)
    _waiting: dict[str, tuple[int, int]] = field(default_factory=dict)

    def record(
        self, tenant_id: str, envelope: Envelope, stamp: Stamp, *, subject: str | None = None
    ) -> None:
        """Add an audit row to what this transaction commits."""
        self.take_in(tenant_id, [audit_row(envelope, stamp, self.now, subject=subject)])

    def take_in(self, tenant_id: str, rows: Iterable[AuditRow]) -> None:
        """Add a few rows to what this transaction commits: those of a day become one batch."""
        self._rows.setdefault(tenant_id, []).extend(rows)

    def take_in_batches(self, tenant_id: str, batches: Iterable[EncodedBatch]) -> None:
        """Add rows that are batches already."""
        self._batches += [(tenant_id, batch) for batch in batches]

    async def count_waiting(self, tenant_id: str) -> tuple[int, int]:
        """How many rows of the tenant are in no segment yet, and in how many batches.

        Those of this transaction included; its single rows are in no batch before it ends.
        """
        if tenant_id not in self._waiting:
            self._waiting[tenant_id] = await count_journal(self.session, tenant_id)
        rows, batches = self._waiting[tenant_id]
        added = [batch.rows for owner, batch in self._batches if owner == tenant_id]
        return rows + sum(added) + len(self._rows.get(tenant_id, ())), batches + len(added)

    def recorded_events(self) -> list[str]:
        """The events recorded so far, organisation by organisation."""
        return [row.event for rows in self._rows.values() for row in rows]

    async def journal_rows(self) -> None:
        """Give all rows their seq and store them; the last step before the commit."""
        for tenant_id, rows in self._rows.items():
            self.take_in_batches(tenant_id, encode_days(rows))
        self._rows.clear()
        await append_batches(self.session, self._batches, received_at=self.now)
        self._batches.clear()


class Store:
    """The database, as transactions. A database that does not answer is StoreUnavailable."""

    def __init__(self, engines: Engines, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._standing = Standing(engines.watch)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """One read transaction: every query in it sees the same instant of the database."""
        async with _session(self._engines.reader) as session, session.begin():
            yield session

    async def known(
        self,
        key: Hashable,
        load: Callable[[AsyncSession], Awaitable[_Found]],
        size_of: Callable[[_Found], int] = lambda found: LINE_BYTES,
    ) -> _Found:
        """What `load` finds in a read transaction of now, or in one since which nothing changed.

        For what every request asks, see `Standing.get`: `key` and the database alone decide what
        it is, and whoever gets it shares it with others, and must not change it.
        """

        async def read() -> _Found:
            async with self.read() as session:
                return await load(session)

        return await self._standing.get(key, read, size_of)

    async def snapshot(self, tenant_id: str) -> Snapshot:
        """All audit rows of the tenant as of now."""

        async def load(session: AsyncSession) -> Snapshot:
            return await snapshot(session, tenant_id, self._kept)

        return await self.known(("snapshot", tenant_id), load, snapshot_size)

    async def last_seq(self) -> int:
        """The last seq given out to any tenant: while it stands still there is no new row."""
        return await self.known("last_seq", last_seq)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Work]:
        """One write transaction; leaving the block commits it, durably, or rolls it back."""
        async with _session(self._engines.writer) as session, session.begin():
            await session.connection()  # waits for the write lock, so that now follows commit order
            work = Work(session, self._clock())
            yield work
            await work.journal_rows()

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
