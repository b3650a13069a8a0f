"""Transactions for synchronous code: on the driver's connection itself, or in a session."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from sqlalchemy import Delete, Dialect, Insert, Select, Update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

Statement = Select[*tuple[Any, ...]] | Insert | Update | Delete
"""On columns, not on mapped objects: what the ORM adds to a row exists only in sessions."""

BEGAN_AT: Final = "began_at"
"""Key in the `info` of connections and sessions: when a write transaction got the lock.

By the database's clock; where it has none, the key is missing.
"""

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Transaction(Protocol):
    """An open transaction. Statements are prepared once and cached, so they must be constants.

    Values in `kept` stay available to later transactions until another transaction changes a row.
    They must be true as of this transaction's commit.
    """

    kept: dict[Hashable, Any]
    began_at: datetime | None
    """When a write transaction got the lock, by the database's clock; None: it has no clock."""

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows that `statement` selects or returns."""

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""


class DirectTransaction(ABC):
    """A `Transaction` on the driver's connection, each statement of which goes there at once.

    SQLAlchemy, several times slower than the database, only compiles each statement once and
    converts column values.
    """

    kept: dict[Hashable, Any]

    def __init__(self, prepare: Callable[[Statement], "PreparedStatement"]) -> None:
        """`prepare` keeps what it returns: statements are constants of the source."""
        self._prepare = prepare
        self.began_at: datetime | None = None

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Execute one SQL statement and return its rows."""

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Any]:
        """The rows that `statement` selects or returns."""
        prepared = self._prepare(statement)
        return prepared.outputs(self.execute(prepared.sql, prepared.inputs(parameters)))

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""
        prepared = self._prepare(statement)
        for values in parameters:
            self.execute(prepared.sql, prepared.inputs(values))


class PreparedStatement:
    """A compiled statement: its SQL and the conversions of its parameters and columns."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        binds = [compiled.binds[name] for name in compiled.positiontup or ()]
        types = [column.type.dialect_impl(dialect) for column in statement.exported_columns]
        self.sql = compiled.string
        self._names = [bind.key for bind in binds]
        self._constants = {bind.key: bind.effective_value for bind in binds if not bind.required}
        self._encoders = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
        self._decoders = [kind.result_processor(dialect, None) for kind in types]

    def inputs(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The values of `parameters` in positional order, converted for storage."""
        given = {**self._constants, **parameters}
        return [
            given[name] if encode is None else encode(given[name])
            for name, encode in zip(self._names, self._encoders, strict=True)
        ]

    def outputs(self, rows: list[Any]) -> list[Any]:
        """`rows` converted to Python values."""
        if not any(self._decoders):
            return rows
        return [
            tuple(
                value if decode is None else decode(value)
                for value, decode in zip(row, self._decoders, strict=True)
            )
            for row in rows
        ]


class SessionTransaction:
    """A `Transaction` on top of a session, for any database; see `within`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.kept: dict[Hashable, Any] = {}
        self.began_at: datetime | None = session.info.get(BEGAN_AT)

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows that `statement` selects or returns."""
        return self._session.execute(statement, dict(parameters)).all()

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""
        lines = [dict(line) for line in parameters]
        if lines:  # SQLAlchemy takes an empty list for one line without parameters
            self._session.execute(statement, lines)


async def within(
    session: AsyncSession,
    work: Callable[Concatenate[Transaction, _Arguments], _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """The result of `work` in the transaction of `session`."""

    def run(sync: Session) -> _Result:
        return work(SessionTransaction(sync), *arguments, **named)

    return await session.run_sync(run)
