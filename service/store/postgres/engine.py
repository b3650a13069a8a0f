"""PostgreSQL engines: one writer of all nodes, readers with a snapshot, every wait limited."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import URL, event, exc
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from sqlalchemy.util import greenlet_spawn

from service.core.errors import NOT_STORABLE_TEXT, StorageBusy, StoreUnavailable
from service.store.engines import CommitObserver, Engines
from service.store.postgres.connection import Connector, PostgresConnection
from service.store.postgres.connection_url import driver_options
from service.store.postgres.direct import (
    KeptValues,
    PostgresTransaction,
    begin_reading,
    begin_writing,
    discarded_on_failure,
    finish,
)
from service.store.postgres.faults import (
    driver_error,
    fault_of,
    is_connection_unusable,
    is_text_refused,
)
from service.store.postgres.probe import DatabaseClock, SnapshotProbe
from service.store.transaction import BEGAN_AT, Transaction

WRITERS: Final = 2
"""One writes; the next has begun to wait for the lock, so that it is not free for a round trip."""
READERS: Final = 8

# The bytes of "Counte": any number will do that other programs in the database do not lock.
WRITE_LOCK: Final = 0x436F756E7465
_BEGIN_WRITING: Final = f"""
    WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock({WRITE_LOCK}))
    SELECT clock_timestamp() FROM locked
"""  # noqa: S608 - a constant
"""Takes the writer's lock, then reads the clock: `now` and `seq` follow commit order.

To wait for the lock takes no transaction id, so it does not change the visible snapshot.
"""

_HAS_FAILED: Final = "countersign_has_failed"
"""In a connection's `info`: a statement of its transaction failed."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class PostgresEngines(Engines):
    """Writers that queue for one lock of the database, and readers; no wait exceeds `wait_s`."""

    wait_s: float
    kept: KeptValues = field(default_factory=KeptValues)

    async def read_at_once(self, work: Callable[[Transaction], _Result]) -> _Result:
        """The result of `work` in a read transaction."""
        return await self._at_once(self.reader, begin_reading, work)

    async def write_at_once(
        self, work: Callable[[Transaction], _Result], on_commit: CommitObserver | None = None
    ) -> _Result:
        """The result of `work` in a write transaction, returned after the commit."""
        begin = partial(begin_writing, lock=_BEGIN_WRITING, kept=self.kept)
        return await self._at_once(self.writer, begin, work)

    async def _at_once(
        self,
        engine: AsyncEngine,
        begin: Callable[[PostgresConnection], PostgresTransaction],
        work: Callable[[Transaction], _Result],
    ) -> _Result:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.wait_s):
                    pooled = await greenlet_spawn(engine.sync_engine.raw_connection)
                    # Before anything is sent: an open transaction must not return to the pool.
                    connection = stack.enter_context(discarded_on_failure(pooled))
                    transaction = await greenlet_spawn(begin, connection)
            except TimeoutError as error:
                raise StorageBusy from error
            return await greenlet_spawn(finish, transaction, work)

    async def begin(self, session: AsyncSession) -> None:
        """Get a connection and begin, within `wait_s` altogether. Raises StorageBusy."""
        try:
            async with asyncio.timeout(self.wait_s):
                connection = await session.connection()
        except TimeoutError as error:
            raise StorageBusy from error
        session.info[BEGAN_AT] = connection.info.get(BEGAN_AT)


def postgres_engines(url: URL, wait_s: float) -> PostgresEngines:
    """Engines for the database at `url`. Does not connect yet. Raises as `driver_options`."""
    connector = Connector(driver_options(url), wait_s)

    def engine(opened_by: Connector, **options: Any) -> AsyncEngine:  # noqa: ANN401 - as SQLAlchemy has it
        made = create_async_engine(
            url, async_creator=opened_by.open, hide_parameters=True, **options
        )
        _listen(made)
        return made

    pool = {"max_overflow": 0, "pool_timeout": wait_s}
    writer = engine(connector, isolation_level="READ COMMITTED", pool_size=WRITERS, **pool)
    reader = engine(connector, isolation_level="REPEATABLE READ", pool_size=READERS, **pool)
    migrator = engine(
        replace(connector, limits_statements=False),
        isolation_level="READ COMMITTED",
        poolclass=NullPool,
    )
    for locking in (writer, migrator):
        _begin_writing(locking)
    _read_only(reader)
    clock = DatabaseClock()
    probe = SnapshotProbe(connector, clock)
    return PostgresEngines(
        writer=writer, reader=reader, migrator=migrator, watch=probe, clock=clock, wait_s=wait_s
    )


def _begin_writing(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: SyncConnection) -> None:
        connection.info[_HAS_FAILED] = False
        now: datetime = connection.exec_driver_sql(_BEGIN_WRITING).scalar_one()
        connection.info[BEGAN_AT] = now

    # After a failed statement PostgreSQL answers COMMIT with ROLLBACK, which is no error to the
    # driver: a caller that goes on would believe its rows to be stored.
    @event.listens_for(engine.sync_engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        if context.connection is not None and not context.connection.invalidated:
            # The first connection of an engine has no info while SQLAlchemy looks at the server.
            with suppress(NotImplementedError):
                context.connection.info[_HAS_FAILED] = True

    @event.listens_for(engine.sync_engine, "commit")
    def on_commit(connection: SyncConnection) -> None:
        if connection.info[_HAS_FAILED]:
            raise StoreUnavailable


def _read_only(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        connection.readonly = True


def _listen(engine: AsyncEngine) -> None:
    """Replace connections that are gone before they are used, and raise faults as the store's."""

    @event.listens_for(engine.sync_engine, "checkout")
    def on_checkout(connection: DBAPIConnection, _: ConnectionPoolEntry, __: object) -> None:
        if _driver(connection).is_closed():
            raise exc.DisconnectionError

    @event.listens_for(engine.sync_engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        if is_text_refused(context.original_exception):
            raise NOT_STORABLE_TEXT from context.original_exception
        error = driver_error(context.original_exception)
        fault = fault_of(error)
        if fault is None:
            return
        if is_connection_unusable(error):
            context.is_disconnect = True
        raise fault from context.original_exception


def _driver(connection: DBAPIConnection) -> PostgresConnection:
    driver: PostgresConnection = connection.driver_connection
    return driver
