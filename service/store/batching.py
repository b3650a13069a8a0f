"""Statements over many keys, a bounded number at a time."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import Delete, Insert, Select, Update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

KEYS_MAX: Final = 500
"""Keys per statement; databases limit the number of bound values."""


async def execute_many(
    session: AsyncSession, statement: Insert | Update, parameters: Sequence[dict[str, Any]]
) -> None:
    """Execute `statement` once for each of `parameters`, as one batch."""
    # On the connection: a session cannot run an UPDATE by bound values for many of them.
    await (await session.connection()).execute(statement, parameters)


async def scalars_of(
    session: AsyncSession,
    statement: Select[Any] | Update | Delete,
    column: InstrumentedAttribute[Any],
    keys: Sequence[object],
) -> AsyncIterator[Any]:
    """The values that `statement` yields for rows where `column` is in `keys`; unordered."""
    for start in range(0, len(keys), KEYS_MAX):
        batch = keys[start : start + KEYS_MAX]
        for value in await session.scalars(statement.where(column.in_(batch))):
            yield value
