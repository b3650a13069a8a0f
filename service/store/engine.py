"""Database engines: every commit is durable, and every read sees one snapshot.

All SQLite-specific code is in this module and in `connection`.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from sqlalchemy import URL, event, exc, make_url
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only, greenlet_spawn

from analytics.storage.fsync import fsync
from service.errors import (
    StorageBusy,
    StorageDamaged,
    StorageFull,
    StorageReadOnly,
    StoreUnavailable,
)
from service.settings import PREFIX, InvalidSetting
from service.store.connection import CommitWatcher, Connection, open_connection
from service.store.transaction import Transaction, within

DRIVER_FAULTS: Final = (sqlite3.OperationalError, sqlite3.InterfaceError)
DRIVER_ERROR: Final = sqlite3.DatabaseError
"""The driver's own exceptions, which SQLAlchemy wraps in classes of the same names."""

_BEGIN_READING: Final = "BEGIN"
_BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
_Result = TypeVar("_Result")
_SETTING: Final = f"{PREFIX}DATABASE_URL"
_READERS: Final = 8
_WAL_ATTEMPTS: Final = 10
_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    sqlite3.SQLITE_FULL: StorageFull,
    sqlite3.SQLITE_READONLY: StorageReadOnly,
    sqlite3.SQLITE_BUSY: StorageBusy,
    sqlite3.SQLITE_LOCKED: StorageBusy,
    sqlite3.SQLITE_CORRUPT: StorageDamaged,
    sqlite3.SQLITE_NOTADB: StorageDamaged,
}
"""SQLite's result codes as the store's errors."""


@dataclass(frozen=True, slots=True)
class Engines:
    """A `writer` whose transactions start with the write lock, a `reader` with a stable snapshot.

    `watch` detects commits; None for databases without such a check.
    """

    writer: AsyncEngine
    reader: AsyncEngine
    watch: CommitWatcher | None
    are_direct: bool = False
    """Each connection runs a whole transaction in one thread switch."""

    async def write_at_once(self, work: Callable[[Transaction], _Result]) -> _Result:
        """The result of `work` in a write transaction, returned after the commit."""
        return await self._at_once(self.writer, _BEGIN_WRITING, work)

    async def read_at_once(self, work: Callable[[Transaction], _Result]) -> _Result:
        """The result of `work` in a read transaction."""
        return await self._at_once(self.reader, _BEGIN_READING, work)

    async def _at_once(
        self, engine: AsyncEngine, begin: str, work: Callable[[Transaction], _Result]
    ) -> _Result:
        if not self.are_direct:
            async with AsyncSession(engine) as session, session.begin():
                await session.connection()  # begin the transaction before `work`
                return await within(session, work)

        # An AsyncConnection takes three times as long to check out and return as a raw one.
        def run() -> _Result:
            pooled = engine.sync_engine.raw_connection()
            try:
                connection = cast("Connection", pooled.driver_connection)
                return await_only(connection.transact(begin, work))
            finally:
                pooled.close()

        return await greenlet_spawn(run)

    async def dispose(self) -> None:
        """Close every connection."""
        if self.watch is not None:
            self.watch.close()
        await self.writer.dispose()
        await self.reader.dispose()


def create_engines(url: str | URL, wait_s: float) -> Engines:
    """Engines for `url`; waits for a connection or a lock end after `wait_s` seconds.

    Does not connect yet. Raises InvalidSetting for a URL that SQLAlchemy cannot use.
    """
    with _url_faults():
        if make_url(url).get_backend_name() == "sqlite":
            return _sqlite_engines(url, wait_s)
        pool: dict[str, Any] = {"pool_timeout": wait_s, "hide_parameters": True}
        return Engines(
            writer=create_async_engine(url, **pool),
            reader=create_async_engine(url, isolation_level="REPEATABLE READ", **pool),
            watch=None,
        )


def url_of(file: Path) -> URL:
    """The URL of the SQLite database in `file`; any file name is quoted correctly."""
    return URL.create("sqlite+aiosqlite", database=str(file))


def file_of(url: str) -> Path:
    """The file of the SQLite database at `url`. Raises InvalidSetting if it is not in a file."""
    with _url_faults():
        parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise InvalidSetting(f"{_SETTING}: only a database in a file can be copied")
    return Path(parsed.database).resolve()


def make_private(url: str) -> None:
    """Create the file of a new database with mode 0600; SQLite would make it world-readable.

    SQLite's side files inherit the mode. An existing file is not opened: closing it would drop the
    POSIX locks that this process holds on it.
    """
    with suppress(OSError, InvalidSetting):  # connecting reports the cause
        os.close(os.open(file_of(url), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def copy_database(file: Path, target: Path) -> None:
    """Copy the database in `file`, as of one instant, durably to the new file `target`.

    Writers are not blocked: the copy is one read transaction. Raises StoreUnavailable, also if the
    database is damaged.
    """
    target.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(target)) as copy:
            # An unfinished copy is discarded after a crash; a finished one is synced below.
            copy.execute("PRAGMA synchronous = OFF")
            source.backup(copy)
            (outcome,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if outcome != "ok":
                raise StorageDamaged from sqlite3.DatabaseError(f"{file}: {outcome}")
    except sqlite3.Error as error:
        raise _fault(error) from error
    fsync(target)


def is_in_use(file: Path) -> bool:
    """True while a process on this machine has the database in `file` open."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:  # or damaged: then it may be replaced
            return _fault(error) is StorageBusy
    return False


def fault_of(error: Exception) -> type[StoreUnavailable]:
    """The StoreUnavailable class for an exception of SQLAlchemy or the driver."""
    return _fault(error.orig if isinstance(error, exc.DBAPIError) else error)


def _fault(error: BaseException | None) -> type[StoreUnavailable]:
    # The low byte is the primary result code (https://sqlite.org/rescode.html).
    return _FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, StoreUnavailable)


@contextmanager
def _url_faults() -> Iterator[None]:
    """Turn SQLAlchemy's errors about the URL into InvalidSetting."""
    try:
        yield
    except ValueError as error:
        # The error's own text repeats the presumed port, which may be part of a password.
        raise InvalidSetting(f"{_SETTING}: the port is not a number") from error
    except (exc.ArgumentError, exc.InvalidRequestError, ImportError) as error:
        raise InvalidSetting(f"{_SETTING}: {error}") from error


def _sqlite_engines(url: str | URL, wait_s: float) -> Engines:
    """One writer, as in SQLite itself: callers queue for it instead of polling the lock."""
    path = make_url(url).database
    if not path or path == ":memory:":
        raise InvalidSetting(f"{_SETTING}: must name a file; memory is not shared or durable")

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
    return Engines(writer, reader, CommitWatcher(path), are_direct=True)


def _open_durably(engine: AsyncEngine, wait_s: float) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # Disables sqlite3's implicit transactions: every BEGIN is issued by this module.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
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
        cast("Connection", connection.connection.driver_connection).begin_with_next()
