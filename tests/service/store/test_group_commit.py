"""Group commit: one sync of the disk for many, and each of them gets its own answer."""

import asyncio

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from service.errors import KeyReused, StorageBusy, StoreUnavailable
from service.store.group_commit import GROUP_MAX, GroupCommit
from service.store.tables import Organisation
from tests.conftest import START
from tests.service.store.conftest import database


@pytest.fixture
def group(store) -> GroupCommit:
    return GroupCommit(store)


@pytest.fixture
def commits(engines) -> list[str]:
    """Grows by one with every commit."""
    seen: list[str] = []
    event.listen(engines.writer.sync_engine, "commit", lambda connection: seen.append("commit"))
    return seen


def adding(slug: str):
    """A change that adds an organisation and comes to its slug."""

    async def change(work) -> str:
        work.session.add(
            Organisation(
                id=f"org_{slug}", slug=slug, tier="org", role_overrides={}, created_at=work.now
            )
        )
        await work.session.flush()
        return slug

    return change


async def refusing(work) -> None:
    raise KeyReused


async def breaking(work) -> None:
    raise OperationalError("INSERT", {}, Exception("disk I/O error"))


async def stored(store) -> list[str]:
    """The slugs in the database, in the order in which they were added."""
    async with store.read() as session:
        return list(await session.scalars(select(Organisation.slug)))


SLUGS = [f"org-{number:03}" for number in range(3 * GROUP_MAX)]


async def test_a_change_alone_is_committed_at_once(store, group, commits):
    """Nobody waits for company."""
    assert await group.commit(adding("acme")) == "acme"

    assert len(commits) == 1
    assert await stored(store) == ["acme"]


async def test_changes_that_come_together_share_their_commits(store, group, commits):
    """As many commits as groups, not as changes; each change has its own result."""
    results = await asyncio.gather(*(group.commit(adding(slug)) for slug in SLUGS))

    assert results == SLUGS
    assert len(commits) == len(SLUGS) / GROUP_MAX
    assert sorted(await stored(store)) == SLUGS


async def test_who_comes_while_a_group_is_under_way_is_in_the_next(store, group, commits):
    """However long the first one takes, everybody else waits for one commit more."""
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def slow(work) -> str:
        begun.set()
        await let_go.wait()
        return await adding("first")(work)

    first = asyncio.create_task(group.commit(slow))
    await begun.wait()
    others = [asyncio.create_task(group.commit(adding(slug))) for slug in SLUGS[:GROUP_MAX]]
    await asyncio.sleep(0)
    let_go.set()
    await asyncio.gather(first, *others)

    assert len(commits) == 2
    assert len(await stored(store)) == GROUP_MAX + 1


async def test_changes_run_in_the_order_in_which_they_came(group):
    """Also over the border of a group."""
    ran: list[int] = []

    def noting(number: int):
        async def change(work) -> None:
            ran.append(number)

        return change

    await asyncio.gather(*(group.commit(noting(number)) for number in range(3 * GROUP_MAX)))

    assert ran == list(range(3 * GROUP_MAX))


async def test_a_result_is_durable_when_it_is_known(group, settings):
    """Another program that opens the file finds it there."""
    for slug in SLUGS[:3]:
        await group.commit(adding(slug))
        with database(settings) as connection:
            found = connection.execute("SELECT 1 FROM organisations WHERE slug = ?", [slug])
            assert found.fetchone()


async def test_a_refusal_does_not_undo_its_neighbours(store, group, commits):
    """It is for the one who asked."""
    changes = [adding("one"), refusing, adding("two"), refusing, adding("three")]

    results = await asyncio.gather(
        *(group.commit(change) for change in changes), return_exceptions=True
    )

    assert [type(result) for result in results] == [str, KeyReused, str, KeyReused, str]
    assert len(commits) == 1
    assert sorted(await stored(store)) == ["one", "three", "two"]


async def test_a_database_that_fails_fails_the_whole_group(store, group):
    """A group is one transaction: nobody is told yes, and nothing is there."""
    results = await asyncio.gather(
        *(group.commit(change) for change in (adding("one"), breaking, adding("two"))),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [StoreUnavailable] * 3
    assert {result.status for result in results} == {503}
    assert await stored(store) == []


async def test_a_commit_that_fails_fails_the_whole_group(store, engines, group):
    """The last step can fail like any other, and the next group is not touched by it."""

    def fail(connection) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    event.listen(engines.writer.sync_engine, "commit", fail)
    results = await asyncio.gather(
        *(group.commit(adding(slug)) for slug in SLUGS[:5]), return_exceptions=True
    )
    event.remove(engines.writer.sync_engine, "commit", fail)

    assert [type(result) for result in results] == [StoreUnavailable] * 5
    assert await stored(store) == []
    assert await group.commit(adding("later")) == "later"
    assert await stored(store) == ["later"]


async def test_a_database_that_others_hold_fails_the_group(store, settings, group):
    """After the wait that was set, and not for good."""
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
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def slow(work) -> str:
        begun.set()
        await let_go.wait()
        return await adding("running")(work)

    running = asyncio.create_task(group.commit(slow))
    await begun.wait()
    queued = asyncio.create_task(group.commit(adding("queued")))
    neighbour = asyncio.create_task(group.commit(adding("neighbour")))
    await asyncio.sleep(0)
    running.cancel()
    queued.cancel()
    let_go.set()

    assert await neighbour == "neighbour"
    assert running.cancelled()
    assert queued.cancelled()
    assert sorted(await stored(store)) == ["neighbour", "queued", "running"]


async def test_draining_waits_for_all_that_was_asked_for(store, group):
    """Several groups, and the clients gone."""
    tasks = [asyncio.create_task(group.commit(adding(slug))) for slug in SLUGS]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()

    await group.drain()

    assert sorted(await stored(store)) == SLUGS


async def test_draining_nothing_is_done_at_once(group):
    """A server that took nothing in stops, too."""
    await group.drain()
    await group.commit(adding("acme"))
    await group.drain()


async def test_all_changes_of_a_group_have_its_instant(group, clock):
    """The write lock is held from then on, so that instants follow commit order."""

    async def instant(work):
        clock.advance(seconds=1)
        return work.now

    assert await asyncio.gather(*(group.commit(instant) for _ in range(5))) == [START] * 5
