"""A server that is stopped, paused, full or read-only: 503 in time, and then back without us."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import certifi
import psycopg
import pytest
from sqlalchemy import event, make_url, text

from service.core.clock import utc_now
from service.core.errors import (
    STORAGE_DAMAGED,
    STORAGE_READ_ONLY,
    StorageBusy,
    StorageFull,
    StoreUnavailable,
)
from service.store.faults import is_outage
from service.store.organisations import find_org
from service.store.postgres.engine import READERS
from service.store.postgres.faults import fault_of
from service.store.store import Store
from tests.polling import HANG_S, eventually, until
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org
from tests.service.store.postgres.conftest import open_engines, open_store

WAIT_S = 2.0
"""Long enough for a busy machine to connect anew."""


async def read(node: Store) -> Any:
    async with node.read() as session:
        return await find_org(session, "acme")


async def read_cached(node: Store) -> Any:
    return await node.last_seq()


async def write(node: Store) -> Any:
    return await add_org(node, f"org-{time.monotonic_ns()}")


async def write_at_once(node: Store) -> Any:
    return await node.write_at_once(lambda work: work.now)


WORK = (read, read_cached, write, write_at_once)


@pytest.fixture
async def node(own_postgres: PostgresServer) -> AsyncIterator[Store]:
    """A node with open connections of every kind."""
    opened = open_store(own_postgres.url(own_postgres.create_database()), wait_s=WAIT_S)
    await asyncio.gather(*(work(opened) for work in WORK * 3))
    yield opened
    await opened.close()


async def expect_fault_in_time(work: Callable[[Store], Awaitable[Any]], node: Store) -> None:
    """`work` fails as unavailable: its wait has an end, although the server gives it none."""
    async with asyncio.timeout(HANG_S):
        with pytest.raises(StoreUnavailable):
            await work(node)


async def check_everything_works(node: Store) -> None:
    """Each kind of work is done at once, three times, without a fault."""
    results = await asyncio.gather(*(work(node) for work in WORK * 3), return_exceptions=True)
    assert [result for result in results if isinstance(result, BaseException)] == []


@pytest.mark.parametrize("is_crash", [False, True], ids=["stopped", "crashed"])
async def test_the_first_requests_after_an_outage_work(
    node: Store, own_postgres: PostgresServer, is_crash: bool
):
    """Connections of before it are replaced when they are taken, without a restart of ours."""
    await asyncio.to_thread(own_postgres.stop, is_crash=is_crash)
    for work in WORK:
        await expect_fault_in_time(work, node)
    await asyncio.to_thread(own_postgres.start)

    await check_everything_works(node)


async def test_an_outage_that_no_request_saw_is_not_seen_later(
    node: Store, own_postgres: PostgresServer
):
    await asyncio.to_thread(own_postgres.stop)
    await asyncio.to_thread(own_postgres.start)

    await check_everything_works(node)


async def test_a_server_that_stops_answering_the_first_connection(own_postgres: PostgresServer):
    """SQLAlchemy asks the server about itself on it, before it counts as one of the pool."""
    engines = open_engines(own_postgres.url(own_postgres.create_database()), WAIT_S)
    event.listen(
        engines.writer.sync_engine, "connect", lambda *_: own_postgres.pause(), insert=True
    )
    node = Store(engines, utc_now)
    try:
        await expect_fault_in_time(write_at_once, node)
    finally:
        own_postgres.resume()
        await node.close()


async def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_said(
    node: Store, own_postgres: PostgresServer
):
    """Its connections are open and its kernel takes in what is sent: only time tells."""
    own_postgres.pause()
    try:
        await asyncio.gather(*(expect_fault_in_time(work, node) for work in WORK))
        await expect_fault_in_time(write, node)  # on a connection that must be opened first
    finally:
        own_postgres.resume()

    await check_everything_works(node)


async def test_a_server_that_stops_answering_within_a_transaction(
    node: Store, own_postgres: PostgresServer
):
    async def write_slowly(node: Store) -> None:
        async with node.write() as work:
            own_postgres.pause()
            await work.session.execute(text("SELECT 1"))

    try:
        await expect_fault_in_time(write_slowly, node)
    finally:
        own_postgres.resume()
    await check_everything_works(node)


async def test_a_process_ends_although_the_server_does_not_answer(
    own_postgres: PostgresServer,
):
    """Its grace is for requests, not for saying goodbye to a server."""
    node = open_store(own_postgres.url(own_postgres.create_database()), wait_s=WAIT_S)
    await check_everything_works(node)
    own_postgres.pause()
    try:
        async with asyncio.timeout(HANG_S):
            await node.close()
    finally:
        own_postgres.resume()


def end_connections(program: psycopg.Connection[Any]) -> None:
    """As an administrator; return once the server has ended those of the service."""
    own = "pg_stat_activity WHERE application_name = 'countersign'"
    program.execute(f"SELECT pg_terminate_backend(pid) FROM {own}")
    eventually(
        lambda: not program.execute(f"SELECT pid FROM {own}").fetchall(),
        "the connections end",
    )


async def test_a_connection_that_an_administrator_ends_is_replaced(
    node: Store, own_postgres: PostgresServer
):
    with own_postgres.connect() as program:
        end_connections(program)
    await asyncio.sleep(0.1)  # in which the loop reads of it

    await check_everything_works(node)


async def test_a_slow_statement_is_ended_by_the_server(node: Store):
    """It must not go on after its request has ended."""
    closed: list[object] = []
    pool = node._engines.reader.sync_engine.pool
    for end in ("close", "invalidate"):
        event.listen(pool, end, lambda connection, *_: closed.append(connection))
    with pytest.raises(StorageBusy):
        async with node.read() as session:
            await session.execute(text("SELECT pg_sleep(5)"))
    await read(node)
    assert closed == []


async def test_more_readers_than_connections_wait_no_longer_than_said(node: Store):
    """A pool without a limit on waiting would be a service without an answer."""
    reading, may_end = [], asyncio.Event()

    async def occupy() -> None:
        async with node.read() as session:
            reading.append(await session.connection())
            await may_end.wait()

    occupied = [asyncio.create_task(occupy()) for _ in range(READERS)]
    await until(lambda: len(reading) == READERS)
    await expect_fault_in_time(read, node)
    may_end.set()
    await asyncio.gather(*occupied)
    await read(node)


async def test_a_read_only_server_is_that(node: Store, own_postgres: PostgresServer):
    """A standby, or a server that is about to be replaced."""
    name = str(node._engines.reader.url.database)
    with own_postgres.connect() as program:
        program.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        end_connections(program)
    await asyncio.sleep(0.1)

    await read(node)
    with pytest.raises(STORAGE_READ_ONLY):
        await write(node)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (asyncpg.DiskFullError("x"), StorageFull),
        (asyncpg.OutOfMemoryError("x"), StoreUnavailable),
        (asyncpg.TooManyConnectionsError("x"), StorageBusy),
        (asyncpg.ReadOnlySQLTransactionError("x"), STORAGE_READ_ONLY),
        (asyncpg.SerializationError("x"), StorageBusy),
        (asyncpg.DeadlockDetectedError("x"), StorageBusy),
        (asyncpg.LockNotAvailableError("x"), StorageBusy),
        (asyncpg.QueryCanceledError("x"), StorageBusy),
        (asyncpg.IdleInTransactionSessionTimeoutError("x"), StorageBusy),
        (asyncpg.AdminShutdownError("x"), StoreUnavailable),
        (asyncpg.CrashShutdownError("x"), StoreUnavailable),
        (asyncpg.CannotConnectNowError("x"), StoreUnavailable),
        (asyncpg.ConnectionDoesNotExistError("x"), StoreUnavailable),
        (asyncpg.PostgresIOError("x"), StoreUnavailable),
        (asyncpg.DataCorruptedError("x"), STORAGE_DAMAGED),
        (asyncpg.IndexCorruptedError("x"), STORAGE_DAMAGED),
        (ConnectionResetError(), StoreUnavailable),
        (TimeoutError(), StoreUnavailable),
        (asyncpg.InterfaceError("connection is closed"), StoreUnavailable),
        (asyncpg.InterfaceError("another operation is cancelling"), StoreUnavailable),
        (asyncpg.InternalClientError("another operation is in progress"), StoreUnavailable),
        (asyncpg.TargetServerAttributeNotMatched("x"), StoreUnavailable),
        (asyncpg.UniqueViolationError("x"), None),
        (asyncpg.CharacterNotInRepertoireError("x"), None),
        (asyncpg.DataError("invalid input for query argument $1"), None),
        (ValueError("x"), None),
    ],
    ids=lambda value: getattr(type(value), "__name__", "") if isinstance(value, Exception) else "",
)
def test_faults_are_told_from_refusals_by_their_code(error, fault):
    """A refused statement is an error of ours: 503 would hide it."""
    assert fault_of(error) is fault


async def fault_at(url: str) -> StoreUnavailable:
    """How a node over `url` fails."""
    node = open_store(url, wait_s=WAIT_S)
    with pytest.raises(StoreUnavailable) as raised:
        await node.ping()
    await node.close()
    return raised.value


async def test_only_an_outage_is_waited_for(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    """A start that waits for a password to become right would never say that it is wrong."""
    url = make_url(own_postgres.url(own_postgres.create_database()))

    def written(**changes: Any) -> str:
        return url.set(**changes).render_as_string(hide_password=False)

    assert not is_outage(await fault_at(written(password="wrong")))
    assert not is_outage(await fault_at(written(database="missing")))
    assert not is_outage(await fault_at(written(database="postgres")))  # no table of ours
    own_postgres.pause()
    assert is_outage(await fault_at(written()))
    own_postgres.resume()
    await asyncio.to_thread(own_postgres.stop)
    assert is_outage(await fault_at(written()))
    # Of another machine the certificate is verified: by an authority that has to be there.
    monkeypatch.setenv("PGSSLROOTCERT", certifi.where())
    assert is_outage(await fault_at(written(host="no-such-host.invalid")))
