"""SQLite engines: one writer that queues, readers with a snapshot, every commit synced."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import URL, event
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only, greenlet_spawn

from service.core.settings import InvalidSetting
from service.store.engines import URL_SETTING, CommitObserver, Engines
from service.store.sqlite.connection import (
    CommitVersions,
    CommitWatcher,
    SqliteConnection,
    open_connection,
)
from service.store.transaction import Transaction

_BEGIN_READING: Final = "BEGIN"
_BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
_Result = TypeVar("_Result")
_READERS: Final = 8
_WAL_ATTEMPTS: Final = 10


@dataclass(frozen=True, kw_only=True)
class SqliteEngines(Engines):
    """One `writer` and several readers of a file; `watch` looks at shared memory."""

    watch: CommitWatcher

    async def begin(self, session: AsyncSession) -> None:
        """Get a connection; a read transaction begins with its first statement."""
        await session.connection()

    async def write_at_once(
        self, work: Callable[[Transaction], _Result], on_commit: CommitObserver | None = None
    ) -> _Result:
        """The result of `work` in a write transaction, returned after the commit."""
        versions = None if on_commit is None else CommitVersions(self.watch)
        result = await self._at_once(self.writer, _BEGIN_WRITING, work, versions)
        if on_commit is not None and versions is not None and versions.is_alone:
            on_commit(versions.before, versions.after)
        return result

    async def read_at_once(self, work: Callable[[Transaction], _Result]) -> _Result:
        """The result of `work` in a read transaction."""
        return await self._at_once(self.reader, _BEGIN_READING, work)

    async def _at_once(
        self,
        engine: AsyncEngine,
        begin: str,
        work: Callable[[Transaction], _Result],
        versions: CommitVersions | None = None,
    ) -> _Result:
        # An AsyncConnection takes three times as long to check out and return as a raw one.
        def run() -> _Result:
            pooled = engine.sync_engine.raw_connection()
            try:
                connection = cast("SqliteConnection", pooled.driver_connection)
                return await_only(connection.transact(begin, work, versions))
            finally:
                pooled.close()

        return await greenlet_spawn(run)


def sqlite_engines(url: URL, wait_s: float) -> SqliteEngines:
    """One writer, as in SQLite itself: callers queue for it instead of polling the lock.

    Raises InvalidSetting for a database that is not in a file.
    """
    path = url.database
    if not path or path == ":memory:":
        raise InvalidSetting(f"{URL_SETTING}: must name a file; memory is not shared or durable")

    shared: dict[str, Any] = {
        "async_creator": partial(open_connection, partial(sqlite3.connect, path)),
        "max_overflow": 0,
        "pool_timeout": wait_s,
        "hide_parameters": True,
    }
    writer = create_async_engine(url, pool_size=1, **shared)
    reader = create_async_engine(url, pool_size=_READERS, **shared)
    for engine in (writer, reader):
        _open_durably(engine, wait_s)
    _begin_writing(writer)
    _begin_reading(reader)
    return SqliteEngines(writer=writer, reader=reader, migrator=writer, watch=CommitWatcher(path))


def lock_out_others(engine: AsyncEngine) -> None:
    """Let the next transaction of `engine` begin only if no other connection to the file is open.

    None can be opened from then on until `engine` is disposed of. To be called before it connects.
    """

    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA locking_mode = EXCLUSIVE")
        cursor.close()


def _open_durably(engine: AsyncEngine, wait_s: float) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # Disables sqlite3's implicit transactions: every BEGIN is issued by this module.
        connection.isolation_level = None
        cursor = connection.cursor()
        # First: the switch to WAL may have to wait for the write lock.
        cursor.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        _switch_to_wal(cursor)
        # In WAL mode NORMAL, the default of some builds, does not sync the log at each commit.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        # The key of a day that is pruned must be gone from the file, too.
        cursor.execute("PRAGMA secure_delete = ON")
        cursor.execute("PRAGMA synchronous")
        if cursor.fetchone() != (2,):
            raise sqlite3.OperationalError("SQLite did not accept synchronous = FULL")
        cursor.close()


def _switch_to_wal(cursor: DBAPICursor) -> None:
    """Switch the database to WAL mode, if it is not yet.

    `busy_timeout` does not apply to this pragma: of two processes that open a new database at once,
    the second fails with "locked". Taking the write lock does wait, so it comes before each retry.
    """
    for _ in range(_WAL_ATTEMPTS):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            if cursor.fetchone() == ("wal",):
                return
        except sqlite3.OperationalError:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("COMMIT")
    raise sqlite3.OperationalError("SQLite did not accept journal_mode = WAL")


def _begin_writing(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: SyncConnection) -> None:
        connection.exec_driver_sql(_BEGIN_WRITING)


def _begin_reading(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: SyncConnection) -> None:
        cast("SqliteConnection", connection.connection.driver_connection).begin_with_next()
