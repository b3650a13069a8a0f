"""A SQLite connection in a thread of its own, with as few thread switches as possible.

A switch takes longer than most statements. SQLAlchemy makes four: open, execute, fetch, close.
"""

import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiosqlite
from sqlalchemy.dialects import sqlite

from service.store.transaction import DirectTransaction, PreparedStatement

DataVersion = tuple[int, int]

KEPT_MAX: Final = 10_000
"""How many values transactions may keep for later ones."""

_BEGIN: Final = "BEGIN"
_DIALECT: Final = sqlite.dialect()
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A fully fetched statement result."""

    rows: list[Any]
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class SqliteConnection(aiosqlite.Connection):
    """A connection that releases its locks when it is closed.

    When a request is cancelled, SQLAlchemy closes its connection. SQLite keeps a closed connection,
    its transaction and its write lock for as long as any of its statements is referenced, so the
    transaction is rolled back first.
    """

    _is_settled = True
    """No call is running or queued in the thread: every one that was started was awaited."""

    _begins = False

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._kept = _Kept()

    def begin_with_next(self) -> None:
        """Begin a read transaction with the next statement; `BEGIN` alone takes no snapshot."""
        self._begins = True

    def cursor(self) -> "SqliteCursor":  # type: ignore[override]
        """A cursor that fetches all rows at once."""
        return SqliteCursor(self)

    async def run(self, work: Callable[[sqlite3.Cursor], object]) -> _Fetched:
        """Execute `work` and fetch all its rows in one thread switch."""
        begins, self._begins = self._begins, False
        result: _Fetched = await self._execute(_run, self._conn, begins, work)
        return result

    async def transact(
        self,
        begin: str,
        work: Callable[["SqliteTransaction"], _Result],
        versions: "CommitVersions | None" = None,
    ) -> _Result:
        """The result of `work` in a transaction started by `begin`, in one thread switch.

        `versions` is told before and after the commit of a transaction that has the write lock. If
        the caller is cancelled it still runs to its commit. After a failure the transaction stays
        open until `rollback` or `close`.
        """
        result: _Result = await self._execute(
            _transact, self._conn, self._kept, begin, work, versions
        )
        return result

    async def commit(self) -> None:
        """Commit, if a transaction may be open."""
        self._begins = False
        if self._may_be_in_transaction:
            await super().commit()

    async def rollback(self) -> None:
        """Roll back, if a transaction may be open."""
        self._begins = False
        if self._may_be_in_transaction:
            await super().rollback()

    async def close(self) -> None:
        """Roll back, then close."""
        with suppress(ValueError, sqlite3.Error):  # closed already, or nothing to roll back
            await self.rollback()
        await super().close()

    @property
    def _may_be_in_transaction(self) -> bool:
        """False only if no transaction is open and no cancelled call can still open one."""
        return not self._is_settled or self.in_transaction

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as aiosqlite has it
        self._is_settled = False
        done = await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        self._is_settled = True  # not reached after a failure or a cancellation
        return done


async def open_connection(connect: Callable[[], sqlite3.Connection]) -> SqliteConnection:
    """Connect in a daemon thread, which does not keep the process alive."""
    connection = SqliteConnection(connect)
    # aiosqlite has no public option for a daemon thread; SQLAlchemy sets the same attribute
    # (github.com/omnilib/aiosqlite/issues/299, github.com/sqlalchemy/sqlalchemy/issues/13039).
    connection._thread.daemon = True
    try:
        await connection
    except sqlite3.Error:
        connection._thread.join()  # so that it does not call back into a loop already closed
        raise
    return connection


class SqliteCursor:
    """The cursor interface that SQLAlchemy uses. All rows are fetched: no statement stays open."""

    arraysize = 1

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._result = _Fetched([])

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one statement and fetch its rows."""
        self._result = await self._connection.run(lambda cursor: cursor.execute(sql, parameters))

    async def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for each of `parameters`."""
        self._result = await self._connection.run(
            lambda cursor: cursor.executemany(sql, parameters)
        )

    async def fetchall(self) -> list[Any]:
        """The rows of the last statement."""
        return self._result.rows

    async def close(self) -> None:
        """Do nothing: no statement is open."""

    @property
    def description(self) -> Any:  # noqa: ANN401 - as the database API has it
        """The columns, or None for a statement that returns no rows."""
        return self._result.description

    @property
    def rowcount(self) -> int:
        """The number of rows changed."""
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The id of the row inserted last."""
        return self._result.lastrowid


def _run(
    connection: sqlite3.Connection, begins: bool, work: Callable[[sqlite3.Cursor], object]
) -> _Fetched:
    with closing(connection.cursor()) as cursor:
        if begins:
            cursor.execute(_BEGIN)
        work(cursor)
        rows = cursor.fetchall() if cursor.description else []
        return _Fetched(rows, cursor.description, cursor.rowcount, cursor.lastrowid)


@dataclass(slots=True)
class _Kept:
    """Values kept by transactions of one connection, valid for `version` of the database."""

    version: DataVersion | None = None
    values: dict[Hashable, Any] = field(default_factory=dict)


def _transact(
    connection: sqlite3.Connection,
    kept: _Kept,
    begin: str,
    work: Callable[["SqliteTransaction"], _Result],
    versions: "CommitVersions | None",
) -> _Result:
    transaction = SqliteTransaction(connection)
    transaction.execute(begin)
    # data_version covers commits of other connections, total_changes the writes of this one.
    ((others,),) = transaction.execute("PRAGMA data_version")
    if kept.version == (others, connection.total_changes) and len(kept.values) <= KEPT_MAX:
        transaction.kept = kept.values
    result = work(transaction)
    if versions is not None:
        versions.record_before(others)
    transaction.execute("COMMIT")
    # Only after the commit: what a failed transaction kept is not true.
    kept.version, kept.values = (others, connection.total_changes), transaction.kept
    if versions is not None:
        versions.record_after(transaction)
    return result


_prepared: Final = cache(partial(PreparedStatement, dialect=_DIALECT))


class SqliteTransaction(DirectTransaction):
    """A transaction run directly in its connection's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(_prepared)
        self._connection = connection
        self.kept: dict[Hashable, Any] = {}

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute one SQL statement and return its rows."""
        return self._connection.execute(sql, values).fetchall()


class CommitWatcher:
    """Detects commits to the database in `path` without reading its contents.

    SQLite counts for each connection the commits of all others, in any process; this one never
    writes, so it sees all of them. The counter is in shared memory and needs no lock, so the check
    runs in the caller's thread: a thread switch takes twenty times longer.
    """

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._uri = f"{Path(path).resolve().as_uri()}?mode=rw"  # never a new file
        self._connection: sqlite3.Connection | None = None
        self._opened = 0

    async def version(self) -> DataVersion | None:
        """A version that changes with every commit; None if unavailable."""
        return self.look()

    def look(self) -> DataVersion | None:
        """`version`, in any thread."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(
                        self._uri, uri=True, timeout=0, check_same_thread=False
                    )
                    self._opened += 1
                ((count,),) = self._connection.execute("PRAGMA data_version")
            except sqlite3.Error:
                self._close()
                return None
            # Each connection starts its count at an arbitrary value.
            return self._opened, count

    def close(self) -> None:
        """Close the connection, if it is open."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class CommitVersions:
    """The versions before and after one commit, and whether it alone lies between them."""

    def __init__(self, watch: CommitWatcher) -> None:
        self._watch = watch
        self._others = 0
        self.before: DataVersion | None = None
        self.after: DataVersion | None = None
        self.is_alone = False

    def record_before(self, others: int) -> None:
        """Record the version before the commit, whose connection has the write lock.

        `others` are the commits of other connections: none can be added until the commit.
        """
        self._others, self.before = others, self._watch.look()

    def record_after(self, transaction: SqliteTransaction) -> None:
        """Record the version after the commit, by the same connection's `transaction`."""
        self.after = self._watch.look()
        with suppress(sqlite3.Error):  # the commit is done: nothing here may make it a failure
            # Looked at last: another connection's commit that is in `after` is counted here.
            ((others,),) = transaction.execute("PRAGMA data_version")
            is_known = self.before is not None and self.after is not None
            self.is_alone = is_known and others == self._others
