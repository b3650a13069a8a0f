"""Copies a database to an empty one of another kind, row by row; a killed copy can be resumed.

No other process has the source open meanwhile. Each batch is one transaction of the target, in the
order of the source's primary keys, so the number of rows that are there tells where to go on, if
they are the source's first ones still. Until all rows have been compared the target's version is
marked, and no service starts on it; from then on the source's is, because two databases over one
data dir would remove each other's segments.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Table,
    delete,
    exc,
    func,
    insert,
    inspect,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from service.core.clock import utc_now
from service.core.errors import StorageBusy
from service.store.database_copy.refusals import (
    COPY_DIFFERS,
    OTHER_VERSION_BEGAN,
    ROW_NOT_STORABLE,
    SOURCE_CHANGED,
    SOURCE_IN_USE,
    TARGET_NOT_EMPTY,
)
from service.store.engines import Engines
from service.store.faults import store_faults
from service.store.lease import end_leases
from service.store.migrate import (
    COPYING,
    MOVED,
    VERSION_TABLE,
    MovedDatabase,
    OlderDatabase,
    check_version,
    current_version,
    latest_version,
    upgrade,
)
from service.store.sqlite.engine import lock_out_others
from service.store.store import Store
from service.store.tables import Base, JournalEntry

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


Show = Callable[[int, int], None]
ShowProgress = Callable[[str], AbstractContextManager[Show]]
"""Shows what is being done, in rows, while the block lasts."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table that is equal on both sides: its name, its rows, and a digest of them."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Copied:
    """All tables; `found_rows` of their rows had been copied by an earlier run."""

    tables: tuple[CopiedTable, ...]
    found_rows: int

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(table.rows for table in self.tables)


async def copy_all(source: Engines, target: Engines, shown: ShowProgress) -> Copied:
    """Copy every row of `source` to `target`, compare both, and leave only `target` in use.

    Raises OlderDatabase, NewerDatabase, MovedDatabase, SOURCE_IN_USE or SOURCE_CHANGED about the
    source; TARGET_NOT_EMPTY, OTHER_VERSION_BEGAN, ROW_NOT_STORABLE, COPY_DIFFERS, StoreUnavailable.
    """
    with store_faults():
        async with _alone(source) as reading:
            is_moved = await reading.run_sync(_check_source)
            if not await _is_begun(target, is_moved=is_moved):
                await _begin(target)
            with shown("Copying") as show:
                found_rows = await _copy_tables(reading, target, show)
            with shown("Comparing") as show:
                tables = await _compare(reading, target, show)
            # Committed before the target loses its mark: at no time can services start on both.
            await reading.run_sync(_set_version, MOVED + latest_version())
        await _finish(target)
    return Copied(tuple(tables), found_rows)


@asynccontextmanager
async def _alone(source: Engines) -> AsyncIterator[AsyncConnection]:
    """A write transaction of `source`, which no service has open or can open. Raises SOURCE_IN_USE.

    A service started just before the copy would go on writing to it.
    """
    lock_out_others(source.writer)
    async with AsyncExitStack() as stack:
        try:
            with store_faults():
                connection = await stack.enter_async_context(source.writer.begin())
        except StorageBusy as error:
            raise SOURCE_IN_USE(value=str(source.writer.url.database)) from error
        yield connection


def _check_source(connection: Connection) -> bool:
    """True if it was marked as moved: a copy was killed just before its end."""
    version = current_version(connection) or ""
    is_moved = version.startswith(MOVED)
    version = version.removeprefix(MOVED)
    check_version(version)
    if version != latest_version():
        raise OlderDatabase
    return is_moved


async def _is_begun(target: Engines, *, is_moved: bool) -> bool:
    """True if a copy was begun, False if the database is empty.

    Raises TARGET_NOT_EMPTY, OTHER_VERSION_BEGAN; MovedDatabase if nothing is left to be done.
    """
    async with target.migration() as connection:
        try:
            is_begun = await connection.run_sync(_has_mark)
        except TARGET_NOT_EMPTY:
            if is_moved:
                raise MovedDatabase from None
            raise
    if is_moved and not is_begun:
        raise MovedDatabase
    return is_begun


def _has_mark(connection: Connection) -> bool:
    names = inspect(connection).get_table_names()
    if not names:
        return False
    version = (current_version(connection) or "") if VERSION_TABLE.name in names else ""
    if not version.startswith(COPYING):
        raise TARGET_NOT_EMPTY(
            value=min(names, key=lambda name: (name == VERSION_TABLE.name, name))
        )
    if version != COPYING + latest_version():
        raise OTHER_VERSION_BEGAN
    return True


async def _begin(target: Engines) -> None:
    """Make the schema, without any row, and mark it, in one transaction."""
    async with target.migration() as connection:
        await connection.run_sync(upgrade)
        for table in reversed(Base.metadata.sorted_tables):
            await connection.execute(delete(table))  # what migrations have put there
        await connection.run_sync(_set_version, COPYING + latest_version())


def _set_version(connection: Connection, version: str) -> None:
    connection.execute(update(VERSION_TABLE).values(version_num=version))


async def _copy_tables(reading: AsyncConnection, target: Engines, show: Show) -> int:
    """Copy the rows that are not there yet; returns how many are."""
    tables = Base.metadata.sorted_tables  # what is referred to comes first
    total = sum([await count_rows(reading, table) for table in tables])
    async with target.migration() as connection:
        counts = {table.name: await count_rows(connection, table) for table in tables}
    done = found_rows = sum(counts.values())
    show(done, total)
    # Rows are skipped by number alone, so those that are there must be the source's first ones.
    await _check_found(reading, target, counts)
    for table in tables:
        async for rows in batches(reading, table, counts[table.name]):
            with _row_faults(table):
                async with target.migration() as writing:
                    await writing.execute(insert(table), [_values(row) for row in rows])
            done += len(rows)
            show(done, total)
    return found_rows


async def _check_found(reading: AsyncConnection, target: Engines, found: dict[str, int]) -> None:
    """Raise SOURCE_CHANGED unless the rows found in the target are the source's first ones."""
    async with target.migration() as other:
        for table in Base.metadata.sorted_tables:
            rows = found[table.name]
            if rows and await _digest(reading, table, rows) != await _digest(other, table):
                raise SOURCE_CHANGED(table=table.name, rows=str(rows))


def _values(row: Row[Any]) -> dict[str, Any]:
    return dict(row._mapping)


@contextmanager
def _row_faults(table: Table) -> Iterator[None]:
    """Raise ROW_NOT_STORABLE where the target refuses a value, and not the whole statement."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError):
        raise
    except exc.DBAPIError as error:
        if type(error) is exc.DatabaseError:
            raise
        raise ROW_NOT_STORABLE(table=table.name, reason=str(error.orig)) from error


async def _compare(reading: AsyncConnection, target: Engines, show: Show) -> list[CopiedTable]:
    """Every table, equal on both sides. Raises COPY_DIFFERS."""
    tables, compared = Base.metadata.sorted_tables, list[CopiedTable]()
    total = sum([await count_rows(reading, table) for table in tables])
    async with target.migration() as other:  # no other writer, and no limit of time
        for table in tables:
            source, copied = await _digest(reading, table), await _digest(other, table)
            if source != copied:
                raise COPY_DIFFERS(
                    table=table.name, source=str(source.rows), target=str(copied.rows)
                )
            compared.append(CopiedTable(table.name, copied.rows, copied.sha256))
            show(sum(each.rows for each in compared), total)
    return compared


async def _digest(
    connection: AsyncConnection, table: Table, rows_max: int | None = None
) -> TableDigest:
    """That of all rows, or of the first `rows_max` by their primary key."""
    digest = TableDigest()
    async for rows in batches(connection, table):
        digest.add(rows if rows_max is None else rows[: rows_max - digest.rows])
        if digest.rows == rows_max:
            break
    return digest


async def _finish(target: Engines) -> None:
    """Let services start on the target: with statistics for its planner, and without leases."""
    async with target.migration() as connection:
        await connection.execute(text("ANALYZE"))
    async with Store(target, utc_now).write() as work:
        await end_leases(work)
        connection = await work.session.connection()
        await connection.run_sync(_set_version, latest_version())
