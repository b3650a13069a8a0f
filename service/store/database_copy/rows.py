"""The rows of a table in batches, and a digest of them that does not depend on their order."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Row, Table, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.tables import JournalEntry

_BATCH_ROWS: Final = 1000
_JOURNAL_ROWS: Final = 20
"""A journal row holds up to an ingest request's audit rows."""

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(slots=True)
class TableDigest:
    """The number of rows and the sum of their SHA-256 digests.

    A sum, because databases sort text differently.
    """

    rows: int = 0
    _sum: int = field(default=0, repr=False)

    def add(self, rows: Sequence[Row[Any]]) -> None:
        """Include `rows`."""
        self.rows += len(rows)
        for row in rows:
            content = hashlib.sha256(_ENCODER.encode(tuple(row))).digest()
            self._sum = (self._sum + int.from_bytes(content)) % 2**256

    @property
    def sha256(self) -> str:
        """The sum, in hexadecimal."""
        return f"{self._sum:064x}"


async def batches(
    connection: AsyncConnection, table: Table, skipped: int = 0
) -> AsyncIterator[Sequence[Row[Any]]]:
    """The rows in the order of their primary key, without the first `skipped`."""
    key = tuple(table.primary_key)
    first = select(table).order_by(*key).limit(_batch_rows(table))
    rows = (await connection.execute(first.offset(skipped))).all()
    while rows:
        yield rows
        last = tuple(rows[-1]._mapping[column] for column in key)
        rows = (await connection.execute(first.where(tuple_(*key) > last))).all()


async def count_rows(connection: AsyncConnection, table: Table) -> int:
    """How many rows the table has."""
    return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


def _batch_rows(table: Table) -> int:
    return _JOURNAL_ROWS if table.name == JournalEntry.__tablename__ else _BATCH_ROWS
