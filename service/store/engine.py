"""Connections: how each database is opened so that a commit is durable and a read is one snapshot.

Everything that is SQLite's alone stands in this module.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Engines:
    """Two ways in: `writer` begins with the write lock, `reader` with a stable snapshot."""

    writer: AsyncEngine
    reader: AsyncEngine

    async def dispose(self) -> None:
        """Close every connection."""
        await self.writer.dispose()
        await self.reader.dispose()


def create_engines(url: str, wait_s: float) -> Engines:
    """Engines for `url`; whoever waits longer than `wait_s` for a connection or lock gives up."""
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite_engines(url, wait_s)
    pool: dict[str, Any] = {"pool_timeout": wait_s}
    return Engines(
        writer=create_async_engine(url, **pool),
        reader=create_async_engine(url, isolation_level="REPEATABLE READ", **pool),
    )


def _sqlite_engines(url: str, wait_s: float) -> Engines:
    """One writer, because SQLite has one: its callers queue here instead of polling the lock."""
    writer = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=wait_s)
    reader = create_async_engine(url, pool_size=_READERS, max_overflow=0, pool_timeout=wait_s)
    for engine, begin in ((writer, "BEGIN IMMEDIATE"), (reader, "BEGIN")):
        _open_durably(engine, wait_s)
        _begin_with(engine, begin)
    return Engines(writer, reader)


def _open_durably(engine: AsyncEngine, wait_s: float) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # sqlite3 opens no transaction for a SELECT; from here on every BEGIN is ours.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout = {int(wait_s * 1000)}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.execute("PRAGMA synchronous")
        if cursor.fetchone() != (2,):
            raise sqlite3.OperationalError("SQLite did not accept synchronous = FULL")
        cursor.close()


def _begin_with(engine: AsyncEngine, statement: str) -> None:
    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(statement)
