"""Group commit: one sync of the disk for many, and each of them gets its own answer."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import column, insert, select, table

from service.core.errors import StorageBusy, StoreUnavailable
from service.store import group_commit
from service.store.group_commit import GROUP_MAX, GroupCommit
from service.store.idempotency import KEY_REUSED
from service.store.tables import Organisation
from tests.conftest import START
from tests.polling import HANG_S, until
from tests.service.store.conftest import database

pytestmark = pytest.mark.sqlite_only(reason="watches SQLite's one writing connection")

ADD = insert(Organisation.__table__)
NOWHERE = select(column("n")).select_from(table("nowhere"))


@pytest.fixture
def group(store) -> GroupCommit:
    return GroupCommit(store)


@pytest.fixture
async def writer(engines) -> sqlite3.Connection:
    """The connection that all writers take in turn."""
    async with engines.writer.connect() as pooled:
        return (await pooled.get_raw_connection()).driver_connection


@pytest.fixture
async def commits(writer) -> list[str]:
    """Grows by one with every commit."""
    seen: list[str] = []
    await writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    return seen


def adding(slug: str):
    """A change that adds an organisation and comes to its slug."""

    def change(work) -> str:
        line = {
            "id": f"org_{slug}",
            "slug": slug,
            "tier": "org",
            "role_overrides": {},
            "created_at": work.now,
            "held_since": None,
            "held_reason": None,
            "trust_revision": 0,
            "matched_generation": None,
            "matched_revision": None,
            "matched_withdrawn_at": None,
        }
        work.transaction.run(ADD, [line])
        return slug

    return change


def refusing(work) -> None:
    raise KEY_REUSED


def breaking(work) -> None:
    work.transaction.rows(NOWHERE, {})


@asynccontextmanager
async def under_way(store, group, slug: str) -> AsyncIterator[asyncio.Task[str]]:
    """A group of one change that adds `slug` has begun, and ends with the block."""
    async with store.write():
        first = asyncio.create_task(group.commit(adding(slug)))
        await until(lambda: group._worker is not None and not group._queue)
        yield first


async def stored(store) -> list[str]:
    """The slugs in the database, in the order in which they were added."""
    async with store.read() as session:
        return list(await session.scalars(select(Organisation.slug)))


def busy_turn() -> None:
    """What a turn of the event loop does that is not idle."""
    time.sleep(0.000_2)


SLUGS = [f"org-{number:03}" for number in range(3 * GROUP_MAX)]


async def test_a_change_alone_is_committed_at_once(store, group, commits):
    assert await group.commit(adding("acme")) == "acme"

    assert len(commits) == 1
    assert await stored(store) == ["acme"]


async def test_changes_that_come_together_share_their_commits(store, group, commits):
    results = await asyncio.gather(*(group.commit(adding(slug)) for slug in SLUGS))

    assert results == SLUGS
    assert len(commits) == len(SLUGS) / GROUP_MAX
    assert sorted(await stored(store)) == SLUGS


async def test_who_comes_while_a_group_is_under_way_is_in_the_next(store, group, commits):
    async with under_way(store, group, "first") as first:
        others = [asyncio.create_task(group.commit(adding(slug))) for slug in SLUGS[:GROUP_MAX]]
        await asyncio.sleep(0)
    await asyncio.gather(first, *others)

    assert len(commits) == 1 + 2  # that of the block, too
    assert len(await stored(store)) == GROUP_MAX + 1


async def test_a_change_that_a_busy_loop_is_about_to_bring_is_in_the_group(
    group, commits, monkeypatch
):
    """A commit costs as much for one as for many, and would take turns with the loop."""
    monkeypatch.setattr(group_commit, "GATHERING_S", HANG_S)

    async def late() -> str:
        for _ in range(5):
            busy_turn()
            await asyncio.sleep(0)
        return await group.commit(adding("late"))

    assert await asyncio.gather(group.commit(adding("first")), late()) == ["first", "late"]
    assert len(commits) == 1


async def test_a_loop_that_stays_busy_delays_a_group_for_a_moment_only(group, store):
    first = asyncio.create_task(group.commit(adding("first")))
    while not first.done():
        busy_turn()
        await asyncio.sleep(0)

    assert await stored(store) == ["first"]


async def test_changes_run_in_the_order_in_which_they_came(group):
    ran: list[int] = []

    def noting(number: int):
        def change(work) -> None:
            ran.append(number)

        return change

    await asyncio.gather(*(group.commit(noting(number)) for number in range(3 * GROUP_MAX)))

    assert ran == list(range(3 * GROUP_MAX))


async def test_a_result_is_durable_when_it_is_known(group, settings):
    for slug in SLUGS[:3]:
        await group.commit(adding(slug))
        with database(settings) as connection:
            found = connection.execute("SELECT 1 FROM organisations WHERE slug = ?", [slug])
            assert found.fetchone()


async def test_a_refusal_does_not_undo_its_neighbours(store, group, commits):
    changes = [adding("one"), refusing, adding("two"), refusing, adding("three")]

    results = await asyncio.gather(
        *(group.commit(change) for change in changes), return_exceptions=True
    )

    assert [type(result) for result in results] == [str, KEY_REUSED, str, KEY_REUSED, str]
    assert len(commits) == 1
    assert sorted(await stored(store)) == ["one", "three", "two"]


async def test_a_database_that_fails_fails_the_whole_group(store, group):
    """A group is one transaction: either all are answered or nothing is stored."""
    results = await asyncio.gather(
        *(group.commit(change) for change in (adding("one"), breaking, adding("two"))),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert {result.status for result in results} == {503}
    assert await stored(store) == []


async def test_a_commit_that_fails_fails_the_whole_group(store, writer, group):
    def deny_commit(action: int, name: str | None, *_: object) -> int:
        is_commit = (action, name) == (sqlite3.SQLITE_TRANSACTION, "COMMIT")
        return sqlite3.SQLITE_DENY if is_commit else sqlite3.SQLITE_OK

    await writer.set_authorizer(deny_commit)
    results = await asyncio.gather(
        *(group.commit(adding(slug)) for slug in SLUGS[:5]), return_exceptions=True
    )
    await writer.set_authorizer(None)

    assert [type(result) for result in results] == [StoreUnavailable] * 5
    assert await stored(store) == []
    assert await group.commit(adding("later")) == "later"
    assert await stored(store) == ["later"]


async def test_a_database_that_others_hold_fails_the_group(store, settings, group):
    with database(settings) as connection:
        connection.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(
            *(group.commit(adding(slug)) for slug in SLUGS[:2]), return_exceptions=True
        )
        connection.execute("ROLLBACK")

    assert [type(result) for result in results] == [StorageBusy] * 2
    assert await group.commit(adding("later")) == "later"
    assert await stored(store) == ["later"]


async def test_what_a_client_that_left_asked_for_is_committed(store, group):
    """It was accepted; its neighbours get their answers."""
    async with under_way(store, group, "running") as running:
        queued = asyncio.create_task(group.commit(adding("queued")))
        neighbour = asyncio.create_task(group.commit(adding("neighbour")))
        await asyncio.sleep(0)
        running.cancel()
        queued.cancel()

    assert await neighbour == "neighbour"
    assert running.cancelled()
    assert queued.cancelled()
    assert sorted(await stored(store)) == ["neighbour", "queued", "running"]


async def test_draining_waits_for_all_that_was_asked_for(store, group):
    tasks = [asyncio.create_task(group.commit(adding(slug))) for slug in SLUGS]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()

    await group.drain()

    assert sorted(await stored(store)) == SLUGS


async def test_draining_nothing_is_done_at_once(group, store):
    await group.drain()
    await group.commit(adding("acme"))
    await group.drain()

    assert await stored(store) == ["acme"]


async def test_all_changes_of_a_group_have_its_instant(group, clock):
    """The write lock is held from then on, so instants follow commit order."""

    def instant(work):
        clock.advance(seconds=1)
        return work.now

    assert await asyncio.gather(*(group.commit(instant) for _ in range(5))) == [START] * 5


async def test_a_cancelled_wait_for_the_end_leaves_no_change_without_an_answer(group, store):
    async with store.write():  # so that the first group has to wait
        answers = [asyncio.create_task(group.commit(adding(slug))) for slug in ("one", "two")]
        await asyncio.sleep(0)
        draining = asyncio.create_task(group.drain())
        await asyncio.sleep(0)
        draining.cancel()
        await asyncio.wait([draining])

    assert draining.cancelled()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*answers) == ["one", "two"]
