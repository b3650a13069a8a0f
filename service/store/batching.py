"""Statements over many keys, and results of many rows, a bounded number at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Delete, Insert, Select, Update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

KEYS_MAX: Final = 500
"""Keys per statement; databases limit the number of bound values."""

PART_ROWS: Final = 250
"""Rows of a result that are mapped at once, in some 3 ms: other requests have their turn after."""

_Made = TypeVar("_Made")


async def rows_of(
    session: AsyncSession, query: Select[*tuple[Any, ...]], make: Callable[..., _Made]
) -> list[_Made]:
    """What `make` returns for each row of `query`, called with its columns; in parts.

    It should keep no mapped object: to look through 10,000 of them takes the garbage collector
    40 ms, in which nothing else runs.
    """
    result = await session.run_sync(lambda sync: sync.execute(query))  # fetched, but not mapped yet
    made: list[_Made] = []
    for part in result.yield_per(PART_ROWS).partitions():
        made += [make(*row) for row in part]
        await asyncio.sleep(0)
    return made


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
