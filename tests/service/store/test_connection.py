"""One connection: its thread is gone to once for each statement, and never forgotten."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from threading import Event

import pytest
from sqlalchemy import select

from service.store.sqlite.connection import SqliteConnection
from service.store.store import Store
from service.store.tables import Counter

pytestmark = pytest.mark.sqlite_only(reason="a connection in a thread")


@pytest.fixture
async def connection(tmp_path) -> AsyncIterator[SqliteConnection]:
    opened = SqliteConnection(partial(sqlite3.connect, tmp_path / "one.db", isolation_level=None))
    async with opened:
        yield opened


async def test_a_read_goes_to_the_thread_once_for_each_statement_and_once_to_end(store: Store):
    """The way there takes longer than the statement does."""
    await store.ping()
    trips = []
    kept = SqliteConnection._execute

    async def counted(self, fn, *arguments, **named):
        trips.append(fn)
        return await kept(self, fn, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "_execute", counted)
        async with store.read() as session:
            for _ in range(3):
                await session.execute(select(Counter))

    assert len(trips) == 3 + 1


async def test_what_a_statement_leaves_is_all_there(connection: SqliteConnection):
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")
    assert (await cursor.fetchall(), cursor.description) == ([], None)
    await cursor.executemany("INSERT INTO t VALUES (?)", [(3,), (5,)])
    assert cursor.rowcount == 2
    await cursor.execute("INSERT INTO t VALUES (?)", (7,))
    assert cursor.lastrowid == 7
    await cursor.execute("DELETE FROM t WHERE n > ? RETURNING n", (3,))
    assert sorted(await cursor.fetchall()) == [(5,), (7,)]
    assert cursor.rowcount == 2
    await cursor.execute("SELECT n FROM t")
    assert [column[0] for column in cursor.description] == ["n"]


async def test_a_transaction_whose_beginning_was_abandoned_is_rolled_back(
    connection: SqliteConnection,
):
    """A client left while its BEGIN was queued: it must not begin after the end."""
    is_free = Event()
    connection._tx.put_nowait((None, is_free.wait))
    begun = asyncio.create_task(connection.cursor().execute("BEGIN IMMEDIATE"))
    await asyncio.sleep(0)
    begun.cancel()

    ended = asyncio.create_task(connection.rollback())
    await asyncio.sleep(0)
    is_free.set()
    await ended
    await connection.cursor().execute("SELECT 1")

    assert not connection.in_transaction


async def test_a_failed_statement_leaves_its_transaction_to_be_rolled_back(
    connection: SqliteConnection,
):
    connection.begin_with_next()
    with pytest.raises(sqlite3.OperationalError):
        await connection.cursor().execute("SELECT nothing")
    assert connection.in_transaction

    await connection.rollback()

    assert not connection.in_transaction
