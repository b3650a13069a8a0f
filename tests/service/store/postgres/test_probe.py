"""What was read is answered from memory until any node commits, and no longer."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import event, make_url, text, update

from service.core.errors import StoreUnavailable
from service.core.settings import InvalidSetting
from service.store.commit_cache import CommitCache
from service.store.organisations import get_org
from service.store.postgres.connection import Connector, PostgresConnection
from service.store.postgres.connection_url import driver_options
from service.store.postgres.engine import PostgresEngines
from service.store.postgres.probe import DatabaseClock, SnapshotProbe
from service.store.store import Store, SyncUnitOfWork
from service.store.tables import Counter
from tests.budgets import budget
from tests.polling import HANG_S, until
from tests.postgres import PostgresServer
from tests.service.store.conftest import add_org
from tests.service.store.postgres.conftest import open_engines, open_store

COUNTERS = Counter.__table__
INCREMENT = (
    update(COUNTERS)
    .where(COUNTERS.c.name == "n")
    .values(value=COUNTERS.c.value + 1)
    .returning(COUNTERS.c.value)
)

WAITING_WRITERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
async def engines(postgres_url: str) -> AsyncIterator[PostgresEngines]:
    opened = open_engines(postgres_url)
    yield opened
    await opened.dispose()


@pytest.fixture
def probe(engines: PostgresEngines) -> SnapshotProbe:
    assert isinstance(engines.watch, SnapshotProbe)
    return engines.watch


async def test_a_read_on_one_node_sees_what_another_has_confirmed(store: Store, other: Store):
    """Each time, although both answer from memory in between."""
    await add_org(store, "acme")

    async def count(session: Any) -> int:
        return int(await session.scalar(text("SELECT value FROM counters WHERE name = 'n'")) or 0)

    def increment(work: SyncUnitOfWork) -> None:
        work.transaction.rows(INCREMENT, {})

    async with store.write() as work:
        work.session.add(Counter(name="n", value=0))
    stale = 0
    for n in range(1, budget(200, 1_000) + 1):
        await store.write_at_once(increment)
        stale += await other.cached("n", count) != n
        stale += await other.cached("n", count) != n
    assert stale == 0


async def test_while_nothing_is_committed_nothing_is_read_again(store: Store):
    await add_org(store, "acme")
    said: list[str] = []
    reader = store._engines.reader.sync_engine
    event.listen(reader, "before_cursor_execute", lambda c, cursor, sql, *rest: said.append(sql))

    for _ in range(3):
        await store.cached("acme", lambda session: get_org(session, "acme"))

    assert len(said) == 1


async def test_a_writer_that_waits_costs_no_cached_answer(
    store: Store, other: Store, postgres: PostgresServer
):
    """It has no transaction id before it has the lock: a queue of writers is no commit."""
    watch = other._engines.watch
    with postgres.connect() as administrator:

        def a_writer_waits() -> bool:
            return administrator.execute(WAITING_WRITERS).fetchone() == (1,)

        async with store.write():
            before = await watch.version()
            waiting = asyncio.create_task(add_org(other, "acme"))
            await until(a_writer_waits)
            assert await watch.version() == before
    await waiting
    assert await watch.version() != before


class SlowLooks:
    """Looks that wait until they are let through, each at an instant of its own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        self.answered = 0
        self.gate = asyncio.Semaphore(0)
        ask = PostgresConnection.fetchrow

        async def fetchrow(connection: PostgresConnection, *arguments: Any) -> Any:
            self.sent += 1
            answer = await ask(connection, *arguments)
            self.answered += 1
            await self.gate.acquire()
            return answer

        patch.setattr(PostgresConnection, "fetchrow", fetchrow)


async def test_a_look_is_shared_by_those_who_came_before_it_was_sent(
    probe: SnapshotProbe, monkeypatch
):
    """A commit since then would be missed by those who came later."""
    await probe.version()
    looks = SlowLooks(monkeypatch)
    early = [asyncio.create_task(probe.version()) for _ in range(5)]
    await until(lambda: looks.answered == 1)
    late = [asyncio.create_task(probe.version()) for _ in range(5)]
    await asyncio.sleep(0)
    assert looks.sent == 1
    looks.gate.release()
    assert len(set(await asyncio.gather(*early))) == 1
    assert not any(task.done() for task in late)
    looks.gate.release()
    await asyncio.gather(*late)
    assert looks.sent == 2


async def test_who_comes_while_a_look_is_under_way_sees_the_commit_after_it(
    engines: PostgresEngines, store: Store, probe: SnapshotProbe, monkeypatch
):
    """The look was answered before the commit, the request came after it."""
    await add_org(store, "acme")
    cache = CommitCache(probe)

    async def tiers() -> int:
        async with engines.read() as session:
            return int(await session.scalar(text("SELECT count(*) FROM organisations")) or 0)

    assert await cache.get("n", tiers, lambda _: 1) == 1
    looks = SlowLooks(monkeypatch)
    early = asyncio.create_task(cache.get("n", tiers, lambda _: 1))
    await until(lambda: looks.answered == 1)
    await add_org(store, "other")
    late = asyncio.create_task(cache.get("n", tiers, lambda _: 1))
    for _ in range(2):
        looks.gate.release()

    assert await late == 2
    assert await early in {1, 2}


async def test_a_client_that_leaves_ends_no_others_look(probe: SnapshotProbe):
    first, second = (asyncio.create_task(probe.version()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert await second is not None


async def test_a_new_connection_repeats_no_version(probe: SnapshotProbe):
    """It may be to another server, which counts differently."""
    before = await probe.version()
    probe.close()

    assert await probe.version() != before


async def test_a_look_without_an_answer_is_a_fault(own_postgres: PostgresServer):
    """It must not be a hit; the first request after the outage is answered."""
    node = open_store(own_postgres.url(own_postgres.create_database()), wait_s=0.4)
    await node.last_seq()
    own_postgres.pause()
    asked = [asyncio.create_task(node.last_seq()) for _ in range(3)]
    async with asyncio.timeout(HANG_S):
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    own_postgres.resume()

    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert await node.last_seq() == 0
    await node.close()


async def test_a_request_waits_for_its_own_time_and_not_for_looks(own_postgres: PostgresServer):
    """Nor for one look after the other. The looks of this probe have no limit, and never end."""
    url = make_url(own_postgres.url(own_postgres.create_database()))
    connector = Connector(driver_options(url), wait_s=0.4, limits_statements=False)
    probe = SnapshotProbe(connector, DatabaseClock())
    await probe.version()
    own_postgres.pause()
    early = [asyncio.create_task(probe.version()) for _ in range(3)]
    await until(lambda: probe._looking is not None and probe._next is None)
    late = asyncio.create_task(probe.version())
    async with asyncio.timeout(HANG_S):
        outcomes = await asyncio.gather(*early, late, return_exceptions=True)
    own_postgres.resume()

    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert await probe.version()
    probe.close()


async def test_a_look_that_fails_in_any_way_ends(probe: SnapshotProbe, monkeypatch):
    """A certificate that is replaced is no fault of the database; requests come meanwhile."""
    began, ends = asyncio.Event(), asyncio.Event()

    async def refuse(_: Connector) -> PostgresConnection:
        began.set()
        await ends.wait()
        raise InvalidSetting("root.crt does not exist")

    with monkeypatch.context() as patch:
        patch.setattr(Connector, "open", refuse)
        first = asyncio.create_task(probe.version())
        await began.wait()
        second = asyncio.create_task(probe.version())
        await asyncio.sleep(0)
        ends.set()
        answers = await asyncio.gather(first, second, return_exceptions=True)

    assert [type(answer) for answer in answers] == [InvalidSetting, InvalidSetting]
    assert await probe.version() == await probe.version()
