"""Transactions for synchronous code, which runs beside the database and waits for no statement."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Delete, Insert, Select, Update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

Statement = Select[*tuple[Any, ...]] | Insert | Update | Delete
"""Of columns, not of objects: what an object's class adds to a row is not known everywhere."""

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Transaction(Protocol):
    """An open transaction. Each statement is prepared once, so it has to be a constant.

    `kept` may outlive it, until any other transaction changes a row: what is put there is true at
    the commit.
    """

    kept: dict[Hashable, Any]

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What `statement` selects or returns."""

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""


class SessionTransaction:
    """The transaction of a session, for code that its session runs (`within`). Any database's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.kept: dict[Hashable, Any] = {}

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What `statement` selects or returns."""
        return self._session.execute(statement, dict(parameters)).all()

    def run(self, statement: Statement, parameters: Iterable[Mapping[str, Any]]) -> None:
        """Execute `statement` once for each of `parameters`."""
        self._session.execute(statement, [dict(line) for line in parameters])


async def within(
    session: AsyncSession,
    work: Callable[Concatenate[Transaction, _Arguments], _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """What `work` comes to in the transaction of `session`."""

    def run(sync: Session) -> _Result:
        return work(SessionTransaction(sync), *arguments, **named)

    return await session.run_sync(run)
