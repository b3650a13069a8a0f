"""Transactions for synchronous code that runs in the database's thread."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from sqlalchemy import Delete, Insert, Select, Update
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
