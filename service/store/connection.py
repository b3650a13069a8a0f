"""One connection to SQLite, in a thread of its own that is gone to as seldom as can be.

To go there and back takes longer than most of the statements it is done for, and SQLAlchemy takes
four steps for each statement: a cursor, its execution, the rows, and the cursor's end.
"""

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiosqlite
from sqlalchemy.dialects import sqlite

from service.store.transaction import Statement

Version = tuple[int, int]

KEPT_MAX: Final = 10_000
"""How many values transactions may keep for those after them."""

_BEGIN: Final = "BEGIN"
_DIALECT: Final = sqlite.dialect()
_Result = TypeVar("_Result")


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

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._kept = _Kept()

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

    async def transact(self, begin: str, work: Callable[["DirectTransaction"], _Result]) -> _Result:
        """What `work` comes to in a transaction that `begin` begins, in one trip.

        It goes on to its commit if its caller leaves; after a failure it is open, to be rolled
        back by `rollback` or `close`.
        """
        result: _Result = await self._execute(_transact, self._conn, self._kept, begin, work)
        return result

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
    connection = Connection(connect)
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


@dataclass(slots=True)
class _Kept:
    """What transactions of one connection found, as of its `version` of the database."""

    version: Version | None = None
    values: dict[Hashable, Any] = field(default_factory=dict)


def _transact(
    connection: sqlite3.Connection,
    kept: _Kept,
    begin: str,
    work: Callable[["DirectTransaction"], _Result],
) -> _Result:
    transaction = DirectTransaction(connection)
    transaction.execute(begin)
    # The commits of all other connections, and the rows that this one changed or rolled back.
    ((others,),) = transaction.execute("PRAGMA data_version")
    if kept.version == (others, connection.total_changes) and len(kept.values) <= KEPT_MAX:
        transaction.kept = kept.values
    result = work(transaction)
    transaction.execute("COMMIT")
    kept.version, kept.values = (others, connection.total_changes), transaction.kept
    return result


class DirectTransaction:
    """A transaction in its connection's own thread (`service.store.transaction.Transaction`).

    SQLAlchemy takes several times as long for a statement as SQLite does. Here it only writes the
    SQL, once, and says how each column's values are stored.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.kept: dict[Hashable, Any] = {}

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of one statement in SQL."""
        return self._connection.execute(sql, values).fetchall()

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Any]:
        """What `statement` selects or returns."""
        prepared = _prepared(statement)
        return prepared.outputs(self.execute(prepared.sql, prepared.inputs(parameters)))

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""
        prepared = _prepared(statement)
        for values in parameters:
            self.execute(prepared.sql, prepared.inputs(values))


class _Prepared:
    """A statement as the driver takes it: its text, and how values get there and back."""

    def __init__(self, statement: Statement) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        binds = [compiled.binds[name] for name in compiled.positiontup or ()]
        types = [column.type.dialect_impl(_DIALECT) for column in statement.exported_columns]
        self.sql = compiled.string
        self._names = [bind.key for bind in binds]
        self._constants = {bind.key: bind.effective_value for bind in binds if not bind.required}
        self._encoders = [
            bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT) for bind in binds
        ]
        self._decoders = [kind.result_processor(_DIALECT, None) for kind in types]

    def inputs(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The values of `parameters`, in order, as they are stored."""
        given = {**self._constants, **parameters}
        return [
            given[name] if encode is None else encode(given[name])
            for name, encode in zip(self._names, self._encoders, strict=True)
        ]

    def outputs(self, rows: list[Any]) -> list[Any]:
        """Rows as they were before they were stored."""
        if not any(self._decoders):
            return rows
        return [
            tuple(
                value if decode is None else decode(value)
                for value, decode in zip(row, self._decoders, strict=True)
            )
            for row in rows
        ]


_prepared: Final = cache(_Prepared)
"""Statements are constants, so there are no more of them than in the source."""


class CommitWatcher:
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
