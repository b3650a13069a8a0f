"""One writer at a time on all nodes, so that times and seq numbers follow commit order."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import select, text

from analytics.storage.journal_batches import encode_days
from service.core.clock import utc_now
from service.core.errors import STORAGE_READ_ONLY, StorageBusy, StoreUnavailable
from service.store.organisations import find_org
from service.store.postgres.engine import WRITE_LOCK
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import START, SettableClock
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org
from tests.service.store.postgres.conftest import open_store

LINES = select(JournalEntry.first_seq, JournalEntry.received_at).order_by(JournalEntry.first_seq)
BATCH = encode_days([sample_row()])


async def received(store: Store) -> list[datetime]:
    """When each batch was received, in order of seq."""
    async with store.read() as session:
        return [received_at for _, received_at in await session.execute(LINES)]


async def test_seq_and_time_follow_commit_order_on_all_nodes(store: Store, other: Store):
    org = await add_org(store, "acme")

    async def write(node: Store) -> None:
        for _ in range(25):
            async with node.write() as work:
                await asyncio.sleep(0)
                work.journal.add_batches(org.id, BATCH)

    def at_once(work: SyncUnitOfWork) -> None:
        work.journal.add_batches(org.id, BATCH)

    async def write_at_once(node: Store) -> None:
        for _ in range(25):
            await node.write_at_once(at_once)

    await asyncio.gather(
        *(task(node) for node in (store, other) for task in (write, write_at_once))
    )

    times = await received(store)
    assert len(times) == 101
    assert all(earlier < later for earlier, later in pairwise(times))


async def test_a_write_has_the_lock_before_it_has_its_time(store: Store, other: Store):
    """Otherwise a writer that waited would have the time at which it began to wait."""
    async with store.write() as first:
        waiting = asyncio.create_task(add_org(other, "acme"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        held_until = utc_now()
    org = await waiting

    assert first.now < held_until < org.created_at


async def test_a_node_whose_clock_is_off_writes_the_databases_time(store: Store, monkeypatch):
    """Ten minutes here are ten minutes between rows that were received one after the other."""
    monkeypatch.setattr("service.store.postgres.probe.utc_now", lambda: START)
    org = await add_org(store, "acme")

    assert abs(datetime.now(UTC) - org.created_at) < timedelta(seconds=60)
    assert abs(store.clock() - org.created_at) < timedelta(seconds=60)


async def test_a_clock_that_is_given_is_the_clock(postgres_url: str):
    """Tests set the time, on every database."""
    clock = SettableClock()
    node = open_store(postgres_url, clock=clock)
    org = await add_org(node, "acme")
    clock.advance(hours=1)
    later = await node.write_at_once(lambda work: work.now)
    await node.close()

    assert (org.created_at, later) == (START, START + timedelta(hours=1))
    assert node.clock is clock


async def test_a_lock_that_is_held_too_long_is_busy(postgres_url: str, postgres: PostgresServer):
    node = open_store(postgres_url, wait_s=0.3)
    name = postgres_url.rpartition("/")[2]
    with postgres.connect(name) as program:
        program.execute("SELECT pg_advisory_lock(%s)", [WRITE_LOCK])
        started = asyncio.get_running_loop().time()
        with pytest.raises(StorageBusy):
            await add_org(node, "acme")
        assert asyncio.get_running_loop().time() - started < 1
    assert await add_org(node, "acme")
    await node.close()


async def test_a_paused_writer_keeps_the_lock_no_longer_than_said(postgres_url: str, other: Store):
    """A node that is suspended in a transaction would be an outage of all others."""
    paused = open_store(postgres_url, wait_s=0.3)
    async with other.read() as session:
        assert await find_org(session, "acme") is None

    async def hold_lock() -> None:
        async with paused.write() as work:
            assert await add_org(other, "acme")  # once the server has ended the other's session
            await work.session.execute(text("SELECT 1"))

    with pytest.raises(StoreUnavailable):
        await hold_lock()
    assert await add_org(paused, "later")
    await paused.close()


async def test_a_read_sees_one_instant_and_changes_nothing(store: Store):
    async with store.read() as session:
        assert await find_org(session, "acme") is None
        await add_org(store, "acme")
        assert await find_org(session, "acme") is None
    with pytest.raises(STORAGE_READ_ONLY):
        async with store.read() as session:
            await session.execute(text("UPDATE counters SET value = value"))
