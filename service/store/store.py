"""Units of work: a change and the audit rows that record it commit together or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.cache.lru import ByteCache
from analytics.model.events import Envelope
from analytics.model.rows import AuditContext, AuditRow, audit_row
from analytics.storage.journal_batches import EncodedBatch, JournalBatch, encode_days
from analytics.storage.snapshot import Snapshot
from service.core.clock import Clock, utc_now
from service.store.commit_cache import CommitCache
from service.store.engines import Engines
from service.store.faults import store_faults
from service.store.journal import JournalSize, append_batches, count_journal, last_seq
from service.store.snapshots import keep_batches, snapshot, snapshot_size
from service.store.tables import Counter
from service.store.transaction import BEGAN_AT, Transaction, within


class JournalWriter:
    """Collects rows of any tenants and writes them just before the commit."""

    def __init__(self) -> None:
        self._rows: dict[str, list[AuditRow]] = {}
        self._batches: list[tuple[str, EncodedBatch]] = []
        self._stored: list[JournalBatch] = []

    def add(self, tenant_id: str, rows: Iterable[AuditRow]) -> None:
        """Add single rows; rows of the same tenant and day become one batch."""
        self._rows.setdefault(tenant_id, []).extend(rows)

    def add_batches(self, tenant_id: str, batches: Iterable[EncodedBatch]) -> None:
        """Add rows that are already encoded in batches."""
        self._batches += [(tenant_id, batch) for batch in batches]

    def store(
        self, transaction: Transaction, tenant_id: str, batch: EncodedBatch, now: datetime
    ) -> JournalBatch:
        """Store one batch now, for a caller that needs its seq before the commit."""
        (stored,) = append_batches(transaction, [(tenant_id, batch)], now=now)
        self._stored.append(stored)
        _add_to_size(transaction, tenant_id, batch)
        return stored

    def events(self) -> list[str]:
        """The events of the single rows, grouped by organisation."""
        return [row.event for rows in self._rows.values() for row in rows]

    def count(self, transaction: Transaction, tenant_id: str) -> JournalSize:
        """The size of the tenant's journal, including the rows added here.

        Single rows count as rows only: they have no batch and no bytes until they are written.
        """
        size = transaction.kept.get(_key(tenant_id))
        if size is None:
            size = transaction.kept[_key(tenant_id)] = count_journal(transaction, tenant_id)
        added = (batch for owner, batch in self._batches if owner == tenant_id)
        rows, batches, bytes_ = _with(size, added)
        return JournalSize(rows + len(self._rows.get(tenant_id, ())), batches, bytes_)

    def write(self, transaction: Transaction, now: datetime) -> list[JournalBatch]:
        """Assign seq numbers to all rows and store them; returns the stored batches."""
        for tenant_id, rows in self._rows.items():
            self.add_batches(tenant_id, encode_days(rows))
        self._rows.clear()
        self._stored += append_batches(transaction, self._batches, now=now)
        for tenant_id, batch in self._batches:
            _add_to_size(transaction, tenant_id, batch)
        self._batches.clear()
        return self._stored


def _add_to_size(transaction: Transaction, tenant_id: str, batch: EncodedBatch) -> None:
    # A kept size must be true as of the commit, these rows included.
    if (size := transaction.kept.get(_key(tenant_id))) is not None:
        transaction.kept[_key(tenant_id)] = _with(size, [batch])


def _key(tenant_id: str) -> tuple[str, str]:
    """The key of the tenant's cached journal size; counting takes time linear in the journal."""
    return "journal", tenant_id


def _with(size: JournalSize, batches: Iterable[EncodedBatch]) -> JournalSize:
    rows, count, bytes_ = size
    for batch in batches:
        rows, count, bytes_ = rows + batch.rows, count + 1, bytes_ + batch.size
    return JournalSize(rows, count, bytes_)


KEPT_BYTES_MAX: Final = 64 * 2**20
"""Memory for the catalog lines and journal batches that snapshots cache."""

_Found = TypeVar("_Found")
_Arguments = ParamSpec("_Arguments")


@dataclass(slots=True)
class UnitOfWork:
    """One open write transaction: its session, its time, and the audit rows to commit with it."""

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
        """Commit an audit row with this transaction."""
        self.journal.add(tenant_id, [audit_row(envelope, audit_context, self.now, subject=subject)])

    async def journal_rows(self) -> None:
        """Assign seq numbers to all rows and store them; the last step before the commit."""
        await within(self.session, self.journal.write, self.now)


@dataclass(frozen=True, slots=True)
class SyncUnitOfWork:
    """A unit of work for synchronous code, which runs to its end without yielding."""

    transaction: Transaction
    now: datetime
    journal: JournalWriter = field(default_factory=JournalWriter)


class Store:
    """The database as transactions. All methods raise StoreUnavailable if it does not respond."""

    def __init__(self, engines: Engines, clock: Clock) -> None:
        """`clock` is used as given, unless it is the system's and the database has its own.

        Then the database's is the clock of this store and of its transactions: nodes share it, even
        those whose own clock is wrong. Tests that set a clock get it on every database.
        """
        self._engines = engines
        is_replaced = engines.clock is not None and clock is utc_now
        self.clock: Clock = engines.clock if engines.clock and is_replaced else clock
        self._has_database_clock = is_replaced
        self._kept = ByteCache(KEPT_BYTES_MAX)
        self._cache = CommitCache(engines.watch)
        self._rights = CommitCache(engines.watch)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """One read transaction: all its queries see the same snapshot."""
        with store_faults():
            async with self._engines.read() as session:
                yield session

    async def fetch(
        self,
        query: Callable[Concatenate[AsyncSession, _Arguments], Awaitable[_Found]],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Found:
        """The result of `query` in a read transaction of its own."""
        async with self.read() as session:
            return await query(session, *arguments, **named)

    async def cached(
        self, key: Hashable, load: Callable[[AsyncSession], Awaitable[_Found]]
    ) -> _Found:
        """The result of `load` in a read transaction, cached until the next commit.

        It may depend on `key` and the database only. Callers share it and must not change it.
        """
        return await self._cache.get(key, lambda: self.fetch(load))

    async def cached_at_once(self, key: Hashable, query: Callable[[Transaction], _Found]) -> _Found:
        """`cached` for one short query."""
        return await self._cache.get(key, lambda: self.read_at_once(query))

    async def cached_right(self, key: Hashable, query: Callable[[Transaction], _Found]) -> _Found:
        """`cached_at_once`, also over commits that add only rows (see `write_at_once`).

        For what says who may do what, which every request asks: were it read again after each
        commit of rows, each request that sends one would wait for a read as well.
        """
        return await self._rights.get(key, lambda: self.read_at_once(query))

    async def snapshot(self, tenant_id: str) -> Snapshot:
        """All audit rows of the tenant as of now."""

        async def load() -> Snapshot:
            return await self.read_at_once(partial(snapshot, tenant_id=tenant_id, kept=self._kept))

        return await self._cache.get(("snapshot", tenant_id), load, snapshot_size)

    async def last_seq(self) -> int:
        """The highest seq allocated over all tenants: unchanged means no new rows."""
        return await self.cached_at_once("last_seq", last_seq)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[UnitOfWork]:
        """One write transaction; leaving the block commits it durably, or rolls it back."""
        with store_faults():
            async with self._engines.write() as session:
                # Under the write lock, so that `now` follows commit order.
                work = UnitOfWork(session, self._now(session.info.get(BEGAN_AT)))
                yield work
                await work.journal_rows()

    async def write_at_once(
        self, change: Callable[[SyncUnitOfWork], _Found], *, changes_rights: bool = True
    ) -> _Found:
        """The result of `change` in a write transaction, once that is durable.

        Where the database allows, it runs in the connection's thread with one thread switch.
        `changes_rights` is False if it changes nothing that a `cached_right` depends on.
        """

        def run(transaction: Transaction) -> tuple[_Found, list[JournalBatch]]:
            work = SyncUnitOfWork(transaction, self._now(transaction.began_at))
            result = change(work)
            return result, work.journal.write(transaction, work.now)

        with store_faults():
            on_commit = None if changes_rights else self._rights.advance
            result, stored = await self._engines.write_at_once(run, on_commit)
        # Only after the commit: after a failed one, other rows get the same seq.
        keep_batches(self._kept, stored)
        return result

    async def read_at_once(
        self,
        query: Callable[Concatenate[Transaction, _Arguments], _Found],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Found:
        """The result of `query` in a read transaction; runs as in `write_at_once`."""
        with store_faults():
            return await self._engines.read_at_once(
                lambda transaction: query(transaction, *arguments, **named)
            )

    async def read_clocks(self) -> tuple[datetime, datetime]:
        """The time by this store's clock, which is asked now, and by this machine's.

        Both are the same unless the database has a clock of its own.
        """
        if not self._has_database_clock:
            now = self.clock()
            return now, now
        with store_faults():
            await self._engines.watch.version()  # each look reads the database's clock
        return self.clock(), utc_now()

    def _now(self, began_at: datetime | None) -> datetime:
        """The time of a write transaction that has the lock, so that it follows commit order."""
        return began_at if began_at and self._has_database_clock else self.clock()

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the database responds."""
        async with self.read() as session:
            # Reads a row, because SQLite evaluates a constant without reading the file.
            await session.execute(select(Counter))

    async def close(self) -> None:
        """Close every connection."""
        await self._engines.dispose()
