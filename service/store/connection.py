"""One connection to SQLite, in a thread of its own that is gone to as seldom as can be.

To go there and back takes longer than most of the statements it is done for, and SQLAlchemy takes
four steps for each statement: a cursor, its execution, the rows, and the cursor's end.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiosqlite

Version = tuple[int, int]

_BEGIN: Final = "BEGIN"


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a statement has left behind, for nobody to go and ask for."""

    rows: list[Any]
    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None


class Connection(aiosqlite.Connection):
    """A connection that gives its locks back when it is closed.

    A client that leaves cancels its request wherever it stands, and SQLAlchemy then closes the
    connection. SQLite keeps a closed connection, its open transaction and its write lock for as
    long as any statement of it is alive somewhere, so the transaction has to be ended first.
    """

    _is_settled = True
    """Nothing is under way in the thread, nor waits there: what was begun was also waited for."""

    _begins = False

    def begin_with_next(self) -> None:
        """Begin a read transaction with the next statement.

        Where `BEGIN` alone takes no lock and no snapshot, so that nobody can tell the difference.
        """
        self._begins = True

    def cursor(self) -> "Cursor":  # type: ignore[override]
        """A cursor of this service's own."""
        return Cursor(self)

    async def run(self, work: Callable[[sqlite3.Cursor], object]) -> _Ran:
        """Have `work` execute something, and bring all of it back at once."""
        begins, self._begins = self._begins, False
        ran: _Ran = await self._execute(_run, self._conn, begins, work)
        return ran

    async def commit(self) -> None:
        """Commit, unless there is nothing to."""
        self._begins = False
        if self._may_be_in_transaction:
            await super().commit()

    async def rollback(self) -> None:
        """Roll back, unless there is nothing to."""
        self._begins = False
        if self._may_be_in_transaction:
            await super().rollback()

    async def close(self) -> None:
        """Give back what is held, then close."""
        with suppress(ValueError, sqlite3.Error):  # closed already, or nothing to roll back
            await self.rollback()
        await super().close()

    @property
    def _may_be_in_transaction(self) -> bool:
        """False only if there is none, and none to come of what a leaving client left behind."""
        return not self._is_settled or self.in_transaction

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as aiosqlite has it
        self._is_settled = False
        done = await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        self._is_settled = True  # not so after a failure, or when whoever waited is gone
        return done


async def opened(connect: Callable[[], sqlite3.Connection]) -> Connection:
    """What `connect` connects to, in a thread that ends with the process."""
    connection = Connection(connect, iter_chunk_size=64)
    connection._thread.daemon = True  # as SQLAlchemy does with connections it makes itself
    try:
        await connection
    except sqlite3.Error:
        connection._thread.join()  # it is at its end, and must not tell a loop that is closed
        raise
    return connection


class Cursor:
    """What SQLAlchemy needs of a cursor. It holds no statement open: all rows are fetched."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ran = _Ran([])

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one statement, and fetch its rows."""
        self._ran = await self._connection.run(lambda cursor: cursor.execute(sql, parameters))

    async def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Execute one statement for each of `parameters`."""
        self._ran = await self._connection.run(lambda cursor: cursor.executemany(sql, parameters))

    async def fetchall(self) -> list[Any]:
        """The rows, which are here."""
        return self._ran.rows

    async def close(self) -> None:
        """Nothing: there is no statement any more."""

    @property
    def description(self) -> Any:  # noqa: ANN401 - as the database API has it
        """The columns, or None for a statement without any."""
        return self._ran.description

    @property
    def rowcount(self) -> int:
        """How many rows a change has changed."""
        return self._ran.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The row that an insert has made."""
        return self._ran.lastrowid


def _run(
    connection: sqlite3.Connection, begins: bool, work: Callable[[sqlite3.Cursor], object]
) -> _Ran:
    with closing(connection.cursor()) as cursor:
        if begins:
            cursor.execute(_BEGIN)
        work(cursor)
        rows = cursor.fetchall() if cursor.description else []
        return _Ran(rows, cursor.description, cursor.rowcount, cursor.lastrowid)


class Watch:
    """Tells whether anything was committed to the database in `path`, without reading any of it.

    SQLite counts, for each connection, the commits of all others that it has met, of this process
    and of every other; its own it does not count. So this connection only ever looks. What it
    looks at lies in shared memory and nobody is waited for, so it needs no thread to do so: to go
    there and back would take twenty times as long.
    """

    def __init__(self, path: str) -> None:
        self._uri = f"{Path(path).resolve().as_uri()}?mode=rw"  # never a new file
        self._connection: sqlite3.Connection | None = None
        self._opened = 0

    def version(self) -> Version | None:
        """Another one than ever before if anything was committed since; None if nobody knows."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._uri, uri=True, timeout=0)
                self._opened += 1
            ((count,),) = self._connection.execute("PRAGMA data_version")
        except sqlite3.Error:  # the database does not answer
            self.close()
            return None
        # Each connection counts from where it likes.
        return self._opened, count

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
