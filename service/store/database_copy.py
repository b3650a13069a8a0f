"""Copies a SQLite database to an empty PostgreSQL one, in one transaction, and compares the two.

No other process has the source open meanwhile. The transaction makes the schema, copies every row
and compares them, so a copy that is killed leaves the target empty, and is begun again. At no time
can services start on both databases: over one data dir they would remove each other's segments. So
the source is marked before the target's commit, and once more after it.
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
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import (
    URL,
    Connection,
    Row,
    Table,
    delete,
    exc,
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from service.core.errors import Conflict, Invalid, Refusal, StorageBusy
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.engines import Engines
from service.store.faults import store_faults
from service.store.lease import end_leases
from service.store.migrate import (
    COPYING,
    MOVED,
    MOVED_DATABASE,
    OLDER_DATABASE,
    VERSION_TABLE,
    check_version,
    current_version,
    latest_version,
    upgrade,
)
from service.store.sqlite.engine import lock_out_others
from service.store.sqlite.files import file_of, is_in_use, url_of
from service.store.tables import Base, JournalEntry

NOT_FROM_SQLITE: Final = Invalid.of(
    "--from must name a SQLite database: sqlite:///PATH (an absolute path has four slashes)"
)
NOT_TO_POSTGRESQL: Final = Invalid.of(
    "--to, or COUNTERSIGN_DATABASE_URL, must name an empty PostgreSQL database:"
    " postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE"
)
NO_SOURCE: Final = Conflict.of("no database in {value}")
SOURCE_IN_USE: Final = Conflict.of("{value} is in use: stop the service first")
TARGET_NOT_EMPTY: Final = Conflict.of(
    "the target holds tables already, such as {value}: name an empty database"
)
COPY_DIFFERS: Final = Conflict.of(
    "table {table} is not equal on both sides ({source} rows and {target}): the target was changed"
)
ROW_NOT_STORABLE: Final = Conflict.of("the target does not accept a row of table {table}: {reason}")

_DRIVERS: Final = {"postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
"""The drivers of URLs that name none."""

_BATCH_ROWS: Final = 1000
_JOURNAL_ROWS: Final = 20
"""A journal row holds up to an ingest request's audit rows."""

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")

ReportRows = Callable[[int, int], None]
ShowProgress = Callable[[str], AbstractContextManager[ReportRows]]
"""Shows what is being done, in rows, while the block lasts."""


@dataclass(slots=True)
class CopiedTable:
    """A table: its name, its rows, and the sum of their SHA-256 digests.

    A sum, because databases sort text differently.
    """

    name: str
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


def open_source(settings: Settings, url: str | None) -> tuple[Path, Engines]:
    """The file of the SQLite database at `url`, None for the data dir's, and connections to it.

    Raises NOT_FROM_SQLITE, NO_SOURCE, SOURCE_IN_USE.
    """
    if url is None:
        file = settings.data_dir / "countersign.db"
    elif _parsed(url, NOT_FROM_SQLITE).get_backend_name() != "sqlite" or not make_url(url).database:
        raise NOT_FROM_SQLITE
    else:
        file = file_of(url)
    if not file.is_file():
        raise NO_SOURCE(value=str(file))
    if is_in_use(file):
        raise SOURCE_IN_USE(value=str(file))
    return file, create_engines(url_of(file), settings.database_wait_s)


def open_target(settings: Settings, url: str | None) -> Engines:
    """Connections to the PostgreSQL database at `url`, None for that of the settings.

    Raises NOT_TO_POSTGRESQL, InvalidSetting.
    """
    given = _parsed(url or settings.database_url, NOT_TO_POSTGRESQL)
    if given.drivername in _DRIVERS:
        given = given.set(drivername=_DRIVERS[given.drivername])
    if given.get_backend_name() != "postgresql":
        raise NOT_TO_POSTGRESQL
    return create_engines(given, settings.database_wait_s)


def _parsed(url: str, refusal: type[Refusal]) -> URL:
    try:
        return make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise refusal from error


async def copy_all(source: Engines, target: Engines, shown: ShowProgress) -> list[CopiedTable]:
    """Copy every row of `source` to `target`, compare both, and leave only `target` in use.

    Raises OLDER_DATABASE, NEWER_DATABASE, MOVED_DATABASE or SOURCE_IN_USE about the source;
    TARGET_NOT_EMPTY, ROW_NOT_STORABLE, COPY_DIFFERS, StoreUnavailable.
    """
    with store_faults():
        async with _alone(source) as reading, target.migration() as writing:
            is_marked = await reading.run_sync(_check_source)
            await end_leases(reading)  # before they are copied: no holder runs any more
            # A copy that was killed at its very end has filled the target, or has not.
            if not (is_marked and await writing.run_sync(current_version) == latest_version()):
                await writing.run_sync(_make_tables)
                with shown("Copying") as show:
                    await _copy_tables(reading, writing, show)
            with shown("Comparing") as show:
                tables = await _compare(reading, writing, show)
            await writing.execute(text("ANALYZE"))  # statistics for the target's planner
            await reading.run_sync(_set_version, COPYING + latest_version())
            await reading.commit()
        async with source.writer.begin() as marking:
            await marking.run_sync(_set_version, MOVED + latest_version())
    return tables


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
    """True if it is marked by a copy that was killed. Raises MOVED_DATABASE, OLDER_DATABASE."""
    version = current_version(connection) or ""
    if version.startswith(MOVED):
        raise MOVED_DATABASE
    own = version.removeprefix(COPYING)
    check_version(own)
    if own != latest_version():
        raise OLDER_DATABASE
    return own != version


def _make_tables(connection: Connection) -> None:
    """Make the schema, without any row. Raises TARGET_NOT_EMPTY."""
    names = inspect(connection).get_table_names()
    if names:
        first = min(names, key=lambda name: (name == VERSION_TABLE.name, name))
        raise TARGET_NOT_EMPTY(value=first)
    upgrade(connection)
    for table in reversed(Base.metadata.sorted_tables):
        connection.execute(delete(table))  # what migrations have put there


def _set_version(connection: Connection, version: str) -> None:
    connection.execute(update(VERSION_TABLE).values(version_num=version))


async def _copy_tables(
    reading: AsyncConnection, writing: AsyncConnection, show: ReportRows
) -> None:
    done, total = 0, await _count_all(reading)
    for table in Base.metadata.sorted_tables:  # what is referred to comes first
        async for rows in _batches(reading, table):
            with _row_faults(table):
                await writing.execute(insert(table), [dict(row._mapping) for row in rows])
            done += len(rows)
            show(done, total)


async def _compare(
    reading: AsyncConnection, writing: AsyncConnection, show: ReportRows
) -> list[CopiedTable]:
    """Every table, equal on both sides. Raises COPY_DIFFERS."""
    compared: list[CopiedTable] = []
    total = await _count_all(reading)
    for table in Base.metadata.sorted_tables:
        original, copied = await _digest(reading, table), await _digest(writing, table)
        if original != copied:
            rows = {"source": str(original.rows), "target": str(copied.rows)}
            raise COPY_DIFFERS(table=table.name, **rows)
        compared.append(copied)
        show(sum(each.rows for each in compared), total)
    return compared


async def _count_all(connection: AsyncConnection) -> int:
    counts = [select(func.count()).select_from(table) for table in Base.metadata.sorted_tables]
    return sum([await connection.scalar(count) or 0 for count in counts])


async def _digest(connection: AsyncConnection, table: Table) -> CopiedTable:
    digest = CopiedTable(table.name)
    async for rows in _batches(connection, table):
        digest.add(rows)
    return digest


async def _batches(connection: AsyncConnection, table: Table) -> AsyncIterator[Sequence[Row[Any]]]:
    """The rows in the order of their primary key."""
    size = _JOURNAL_ROWS if table.name == JournalEntry.__tablename__ else _BATCH_ROWS
    key = tuple(table.primary_key)
    first = select(table).order_by(*key).limit(size)
    rows = (await connection.execute(first)).all()
    while rows:
        yield rows
        last = tuple(rows[-1]._mapping[column] for column in key)
        rows = (await connection.execute(first.where(tuple_(*key) > last))).all()


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
