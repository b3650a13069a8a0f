"""What was read is answered from memory until the next commit, and no longer."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import event, select

from service.core.errors import OrgNotFound
from service.orgs.organisations import set_tier
from service.store.commit_cache import CommitCache
from service.store.engines import Engines
from service.store.organisations import get_org, read_org
from service.store.sqlite.connection import CommitWatcher
from service.store.store import Store
from service.store.tables import Organisation
from service.store.transaction import Transaction
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR
from tests.service.store.conftest import add_org, database

pytestmark = pytest.mark.sqlite_only(
    reason="reads shared memory; PostgreSQL: postgres/test_probe.py"
)

Load = Callable[[], Awaitable[int]]


class Reads:
    """Something that is read, and how often it was."""

    def __init__(self) -> None:
        self.value = 0
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        return self.value


@pytest.fixture
async def watch(engines: Engines) -> CommitWatcher:
    assert isinstance(engines.watch, CommitWatcher)
    return engines.watch


@pytest.fixture
async def cache(watch: CommitWatcher) -> CommitCache:
    return CommitCache(watch)


@pytest.fixture
async def bare(watch: CommitWatcher, settings) -> AsyncIterator[CommitWatcher]:
    """A second watch over the same database."""
    other = CommitWatcher(str(settings.data_dir / "countersign.db"))
    yield other
    other.close()


async def ask(cache: CommitCache, load: Load, key: str = "key", size: int = 1) -> int:
    return await cache.get(key, load, lambda found: size)


def commit(settings) -> None:
    """A commit by another program; what it says does not matter, only that it says something."""
    with database(settings) as other:
        other.execute("UPDATE counters SET value = value + 1")


async def test_while_nothing_is_committed_nothing_is_read_again(cache):
    reads = Reads()

    assert [await ask(cache, reads) for _ in range(3)] == [0, 0, 0]
    assert reads.count == 1


async def test_a_commit_of_another_program_is_met_at_once(cache, settings):
    """Each process has its memory; what it holds is as good as what any of them has committed."""
    reads = Reads()
    await ask(cache, reads)
    reads.value = 1
    commit(settings)

    assert await ask(cache, reads) == 1


async def test_a_commit_of_our_own_is_met_at_once(store: Store):
    await add_org(store, "acme")

    async def tier() -> str:
        org = await store.cached("acme", lambda session: get_org(session, "acme"))
        return org.tier

    assert await tier() == "org"
    async with store.write() as work:
        await set_tier(work, await get_org(work.session, "acme"), "team", BY_OPERATOR)
        assert await tier() == "org"

    assert await tier() == "team"


async def test_what_is_known_costs_no_statement(store: Store, engines: Engines):
    await add_org(store, "acme")
    said = []
    reader = engines.reader.sync_engine
    event.listen(reader, "before_cursor_execute", lambda c, cursor, text, *rest: said.append(text))

    async def count(session) -> int:
        return len((await session.scalars(select(Organisation))).all())

    assert [await store.cached("count", count) for _ in range(3)] == [1, 1, 1]
    assert len(said) == 1


async def test_a_commit_while_it_is_read_is_met_by_the_next(cache, settings):
    """What was read may be from before it or after it, so it is not for who comes later."""
    reads = Reads()

    async def slow() -> int:
        found = await reads()
        commit(settings)
        reads.value = 1
        return found

    assert await ask(cache, slow) == 0
    assert await ask(cache, reads) == 1


async def test_what_began_before_a_commit_is_not_kept_for_those_after_it(cache, settings):
    """Although it ends after them: it is kept with those that began as early."""
    reads, has_read, has_committed = Reads(), asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        found = await reads()
        has_read.set()
        await has_committed.wait()
        return found

    early = asyncio.create_task(ask(cache, slow, "slow"))
    await has_read.wait()
    reads.value = 1
    commit(settings)
    await ask(cache, reads, "other")
    has_committed.set()

    assert await early == 0
    assert await ask(cache, reads, "slow") == 1


class Gate:
    """Something that is read when it is opened."""

    def __init__(self) -> None:
        self.reads = Reads()
        self.opened = asyncio.Event()

    async def __call__(self) -> int:
        await self.opened.wait()
        if self.reads.value < 0:
            raise OrgNotFound
        return await self.reads()


async def begun(*asked: Awaitable[int]) -> list[asyncio.Task[int]]:
    """Those that ask, each at the point where it waits."""
    asking = [asyncio.ensure_future(one) for one in asked]
    await asyncio.sleep(0)
    return asking


async def test_what_several_ask_for_at_once_is_read_once(cache):
    """After a commit every request asks who calls, and of which organisation."""
    gate = Gate()
    asking = await begun(*(ask(cache, gate) for _ in range(5)))
    gate.opened.set()

    assert await asyncio.gather(*asking) == [0] * 5
    assert gate.reads.count == 1


async def test_who_asks_after_a_commit_does_not_join_who_asked_before_it(cache, settings):
    """What is being read for the others may lack it."""
    early, late = Gate(), Reads()
    before = await begun(ask(cache, early))
    commit(settings)
    late.value = 1
    after = await begun(ask(cache, late))
    early.opened.set()

    assert await asyncio.gather(*before, *after) == [0, 1]
    assert await ask(cache, late) == 1


async def test_a_client_that_leaves_cancels_no_other(cache):
    gate = Gate()
    first, second = await begun(ask(cache, gate), ask(cache, gate))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.opened.set()

    assert await second == 0


async def test_a_refusal_reaches_all_who_waited_for_it(cache):
    gate = Gate()
    gate.reads.value = -1
    asking = await begun(ask(cache, gate), ask(cache, gate))
    gate.opened.set()

    refusals = await asyncio.gather(*asking, return_exceptions=True)
    gate.reads.value = 1

    assert [type(refusal) for refusal in refusals] == [OrgNotFound] * 2
    assert await ask(cache, gate) == 1


async def test_a_refusal_without_a_waiter_is_no_noise(cache):
    """The event loop would log it as an error of this program."""
    noise: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    gate = Gate()
    gate.reads.value = -1
    (asking,) = await begun(ask(cache, gate))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    gate.opened.set()
    await asyncio.sleep(0.01)
    gc.collect()

    assert noise == []


async def test_what_is_refused_is_asked_again(store: Store):
    """What is missing may appear at any moment, and made-up names must not fill the memory."""
    for _ in range(2):
        with pytest.raises(OrgNotFound):
            await store.cached("late", lambda session: get_org(session, "late"))
    assert store._cache._kept.size == 0


async def test_what_is_too_large_is_not_kept(cache):
    reads = Reads()

    for _ in range(2):
        await ask(cache, reads, size=2**40)

    assert reads.count == 2


async def test_while_the_watch_fails_everything_is_read_and_what_was_known_is_forgotten(
    cache, watch
):
    """A look that fails says nothing, and what happened meanwhile was not seen."""
    reads = Reads()
    await ask(cache, reads)
    assert watch._connection is not None
    watch._connection.close()

    assert await watch.version() is None
    for _ in range(3):
        await ask(cache, reads)

    assert reads.count == 2


async def add_row(store: Store, tenant_id: str) -> None:
    """One row, by a commit that changes nothing else."""
    await store.write_at_once(
        lambda work: work.journal.add(tenant_id, [sample_row()]), changes_rights=False
    )


async def read_tier(store: Store, reads: list[str]) -> str:
    """The tier of acme as a right; what had to be read is added to `reads`."""

    def load(transaction: Transaction) -> str:
        reads.append(read_org(transaction, "acme").tier)
        return reads[-1]

    return await store.cached_right("acme", load)


async def test_rights_are_not_read_again_after_a_commit_of_rows(store: Store):
    """Otherwise each request that sends a row would wait for a read as well."""
    acme, reads = await add_org(store, "acme"), list[str]()
    for _ in range(3):
        assert await read_tier(store, reads) == "org"
        await add_row(store, acme.id)

    assert reads == ["org"]


async def test_all_else_is_read_again_after_a_commit_of_rows(store: Store):
    acme = await add_org(store, "acme")
    before = await store.last_seq()
    await add_row(store, acme.id)

    assert await store.last_seq() == before + 1


@pytest.mark.parametrize("rows_first", [True, False])
async def test_rights_are_read_again_after_any_other_commit(store: Store, rows_first: bool):
    acme, reads = await add_org(store, "acme"), list[str]()
    await read_tier(store, reads)
    if rows_first:
        await add_row(store, acme.id)
    async with store.write() as work:
        await set_tier(work, await get_org(work.session, "acme"), "team", BY_OPERATOR)
    await add_row(store, acme.id)

    assert await read_tier(store, reads) == "team"


async def test_rights_are_read_again_after_another_program_committed(store: Store, settings):
    """Before a commit of rows: the step begins at a version that was not seen here."""
    acme, reads = await add_org(store, "acme"), list[str]()
    await read_tier(store, reads)
    change_tier(settings)
    await add_row(store, acme.id)

    assert await read_tier(store, reads) == "team"


async def test_a_commit_right_after_that_of_rows_is_met(
    store: Store, watch: CommitWatcher, settings, monkeypatch: pytest.MonkeyPatch
):
    """Before the version after it is looked at: that version then says nothing of the other one."""
    acme, reads = await add_org(store, "acme"), list[str]()
    await read_tier(store, reads)
    look, looks = watch.look, list[object]()

    def late() -> object:
        looks.append(None)
        if len(looks) == 2:  # the first one is inside the transaction
            change_tier(settings)
        return look()

    monkeypatch.setattr(watch, "look", late)
    await add_row(store, acme.id)

    assert await read_tier(store, reads) == "team"


def change_tier(settings) -> None:
    """By another program."""
    with database(settings) as other:
        other.execute("UPDATE organisations SET tier = 'team'")


async def test_a_watch_that_looks_again_repeats_no_version(watch: CommitWatcher, settings):
    """Each connection counts from where it likes; between two of them anything may happen."""
    before = await watch.version()
    watch.close()

    assert await watch.version() != before


async def test_a_watch_makes_no_database(tmp_path):
    """Nor does it take one that is not there for one that did not change."""
    assert await CommitWatcher(str(tmp_path / "none.db")).version() is None
    assert not list(tmp_path.iterdir())


async def test_a_watch_blocks_no_one(bare: CommitWatcher, store: Store, settings):
    """It keeps no snapshot: a checkpoint gets to the end of the log."""
    await add_org(store, "acme")
    await bare.version()

    with database(settings) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0
