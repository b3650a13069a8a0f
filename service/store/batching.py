"""Statements over many keys, a bounded number at a time."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import Delete, Select, Update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

KEYS_MAX: Final = 500
"""Keys one statement names: databases bound how many values one may bind."""


async def scalars_of(
    session: AsyncSession,
    statement: Select[Any] | Update | Delete,
    column: InstrumentedAttribute[Any],
    keys: Sequence[object],
) -> AsyncIterator[Any]:
    """What `statement` selects or returns where `column` is one of `keys`; in no order."""
    for start in range(0, len(keys), KEYS_MAX):
        some = keys[start : start + KEYS_MAX]
        for found in await session.scalars(statement.where(column.in_(some))):
            yield found
