"""Rejected subjects: noted in memory within bounds, written every few seconds, kept for a while.

What is unverified may be made up, as often as they like: it never takes the room of what
is verified.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta

import msgspec
import pytest

from service.app.background_jobs import housekeeping, write_behind
from service.ci.verifier.codes import Detail, FailureCode
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.orgs.organisations import create_org
from service.trust.rejected.subjects import (
    ENTRIES_PER_ORG_MAX,
    KEPT_FOR,
    PENDING_MAX,
    PENDING_PER_ORG_MAX,
    RejectedSubjects,
    TokenRejection,
)
from tests.budgets import budget
from tests.conftest import BY_OPERATOR, START, SettableClock, World, running_world, settings_over
from tests.crashes import PowerCut, at, power_cut
from tests.databases import SHORT_WAIT_S
from tests.polling import HANG_S
from tests.service.trust.rejected.notes import (
    another_store,
    locked,
    rejection,
    remember,
    remembered,
)

FLOOD = budget(10_000, 100_000)
HOSTILE = [
    "nul \x00 inside",
    "line\r\nbreak\x1b[2J\x07",
    "'; DROP TABLE rejected_subjects; --",
    "<script>alert(1)</script>",
    "\u202egnp.exe \ufeff\U0001f512",
]


@pytest.fixture
def settings(tmp_path) -> Settings:
    """A database that is not waited for long."""
    return msgspec.structs.replace(settings_over(tmp_path), database_wait_s=SHORT_WAIT_S)


@pytest.fixture
async def world(settings: Settings, clock: SettableClock) -> AsyncIterator[World]:
    """Nothing runs in the background: what flushes here is the test."""
    async with running_world(settings, clock, has_sealer=False) as quiet:
        yield quiet


@pytest.fixture
def notes(world) -> RejectedSubjects:
    return world.services.rejected


def dropped(world: World) -> dict[str, float]:
    """Rejections that were not remembered, of verified tokens ("true") and others."""
    beginning = "countersign_rejections_dropped_total{verified="
    lines = world.services.metrics.exposition().decode().splitlines()
    found = [line for line in lines if line.startswith(beginning)]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


def distinct(tenant_id: str, *, is_verified: bool) -> Iterator[TokenRejection]:
    """Rejections without end, each of another subject and a second later than the one before."""
    for number in itertools.count():
        yield rejection(
            tenant_id,
            is_verified=is_verified,
            sub=f"repo:acme/{'known' if is_verified else 'alleged'}-{number}",
            at=START + timedelta(seconds=number),
        )


async def remember_all(world: World, rejections: Iterable[TokenRejection]) -> None:
    """Note and write `rejections`, as many at a time as may wait."""
    waiting = iter(rejections)
    while some := list(itertools.islice(waiting, PENDING_PER_ORG_MAX)):
        await remember(world, *some)


async def test_equal_rejections_are_one_entry_with_a_count(world, notes):
    """A job that runs every minute fills one line; the request to look at is its last."""
    later = START + timedelta(minutes=5)
    notes.record(rejection(world.acme.id, request_id="req_1", owner="acme"))
    notes.record(rejection(world.acme.id, request_id="req_3", owner="acme-corp", at=later))
    notes.record(rejection(world.acme.id, request_id="req_2", at=START + timedelta(minutes=1)))
    await notes.flush()

    (row,) = await remembered(world)

    assert (row.count, row.first_at, row.last_at) == (3, START, later)
    assert (row.last_request_id, row.owner) == ("req_3", "acme-corp")


async def test_what_was_written_before_is_counted_on(world, settings):
    earlier, later = START - timedelta(minutes=1), START + timedelta(minutes=1)
    await remember(world, rejection(world.acme.id, request_id="req_2"))
    async with another_store(settings) as store:
        for moment, request_id in ((later, "req_3"), (earlier, "req_1")):
            worker = RejectedSubjects(store, Metrics())
            worker.record(rejection(world.acme.id, request_id=request_id, at=moment))
            await worker.flush()

    (row,) = await remembered(world)

    assert (row.count, row.first_at, row.last_at) == (3, earlier, later)
    assert row.last_request_id == "req_3"


@pytest.mark.parametrize(
    "change",
    [
        {"is_verified": False},
        {"code": FailureCode.BAD_AUDIENCE},
        {"detail": Detail.EVENT_NAME_NOT_ALLOWED},
        {"issuer": "https://other.example"},
        {"sub": "repo:acme/payments:ref:refs/heads/Main"},
        {"sub": None},
        {"repository_id": "987"},
        {"repository_id": None},
        {"event_name": "schedule"},
        {"project_id": "proj_1"},
    ],
    ids=str,
)
async def test_what_differs_in_anything_that_counts_is_another_entry(world, change):
    """Most of all: what is verified is never counted together with what is not."""
    await remember(world, rejection(world.acme.id), rejection(world.acme.id, **change))

    rows = await remembered(world)

    assert [row.count for row in rows] == [1, 1]
    (name,) = change
    assert {getattr(row, name) for row in rows} == {
        getattr(rejection(world.acme.id), name),
        change[name],
    }


async def test_organisations_have_entries_of_their_own(world):
    await remember(
        world, rejection(world.acme.id), rejection(world.other.id), rejection(world.other.id)
    )

    assert [row.count for row in await remembered(world)] == [1]
    assert [row.count for row in await remembered(world, world.other.id)] == [2]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_kept_as_it_is(world, text):
    changes = dict.fromkeys(("issuer", "sub", "repository_id", "event_name", "owner"), text)
    await remember(world, *[rejection(world.acme.id, is_verified=False, **changes)] * 2)

    (row,) = await remembered(world)

    assert (row.issuer, row.sub, row.repository_id, row.event_name, row.owner) == (text,) * 5
    assert row.count == 2


async def test_long_text_is_cut_to_its_bound(world):
    """Ten kilobytes of a claim must not become ten megabytes of a list."""
    names = ("issuer", "sub", "repository_id", "event_name", "owner")
    await remember(world, rejection(world.acme.id, **dict.fromkeys(names, "\U0001f512" * 10_000)))

    (row,) = await remembered(world)

    assert [len(getattr(row, name)) for name in names] == [256, 1024, 256, 256, 256]
    assert {getattr(row, name)[-1] for name in names} == {"…"}


async def test_text_of_just_its_bound_is_not_cut(world):
    await remember(world, rejection(world.acme.id, sub="s" * 1024, owner="o" * 256))

    (row,) = await remembered(world)

    assert (row.sub, row.owner) == ("s" * 1024, "o" * 256)


async def test_without_rejections_the_database_is_left_alone(world, settings, notes):
    """Otherwise the write lock would be taken every two seconds."""
    with locked(settings):
        await notes.flush()
        notes.record(rejection(world.acme.id))
        with pytest.raises(StoreUnavailable):
            await notes.flush()


async def test_what_could_not_be_written_is_written_with_what_came_meanwhile(
    world, settings, notes
):
    notes.record(rejection(world.acme.id))
    notes.record(rejection(world.acme.id))
    with locked(settings):
        with pytest.raises(StoreUnavailable):
            await notes.flush()
        notes.record(rejection(world.acme.id))
        notes.record(rejection(world.acme.id, sub="repo:acme/new"))

    await notes.flush()

    rows = await remembered(world)
    assert Counter(row.sub for row in rows).total() == 2
    assert sorted(row.count for row in rows) == [1, 3]
    assert set(dropped(world).values()) == {0}


async def flush_at_last(notes: RejectedSubjects) -> None:
    """Flush; a busy machine may need more than one try within the database's short waits."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            await notes.flush()
            return


async def test_what_is_put_back_keeps_to_the_bounds(world, settings, notes):
    source = distinct(world.acme.id, is_verified=False)
    with locked(settings):
        for _ in range(2):
            for one in itertools.islice(source, PENDING_PER_ORG_MAX):
                notes.record(one)
            with pytest.raises(StoreUnavailable):
                await notes.flush()

    await flush_at_last(notes)

    assert len(await remembered(world)) == PENDING_PER_ORG_MAX
    assert dropped(world)["false"] == PENDING_PER_ORG_MAX


async def test_a_flush_that_is_cancelled_loses_nothing(world, notes):
    """The end of the background work flushes once more."""
    notes.record(rejection(world.acme.id))
    async with world.services.store.write():
        flushing = asyncio.create_task(notes.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing

    await notes.flush()

    assert [row.count for row in await remembered(world)] == [1]


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO rejected_subjects", "UPDATE rejected_subjects", "DELETE FROM", "COMMIT"],
)
async def test_a_crash_loses_what_was_not_yet_written_and_nothing_else(world, notes, statement):
    """One transaction: never a part of it."""
    await remember(world, rejection(world.acme.id))
    notes.record(rejection(world.acme.id))
    notes.record(rejection(world.acme.id, sub="repo:acme/new"))
    with power_cut(world.services.store, at(statement)), pytest.raises(PowerCut):
        await notes.flush()

    assert [row.count for row in await remembered(world)] == [1]


async def test_workers_that_flush_at_once_count_together(world, settings):
    async with another_store(settings) as one, another_store(settings) as two:
        workers = [RejectedSubjects(store, Metrics()) for store in (one, two)]
        for number in range(10):
            for worker in workers:
                worker.record(rejection(world.acme.id))
                worker.record(rejection(world.acme.id, sub=f"repo:acme/{number}"))
            await asyncio.gather(*(worker.flush() for worker in workers))

    rows = await remembered(world)
    assert sorted(row.count for row in rows) == [*[2] * 10, 20]


async def test_a_flood_of_unverified_ones_takes_a_bounded_room(world, notes):
    """The first few of many made-up subjects are kept, the others counted."""
    for one in itertools.islice(distinct(world.acme.id, is_verified=False), FLOOD):
        notes.record(one)
    await notes.flush()

    assert len(await remembered(world)) == PENDING_PER_ORG_MAX
    assert dropped(world) == {"true": 0, "false": FLOOD - PENDING_PER_ORG_MAX}


async def test_a_verified_one_finds_room_in_the_midst_of_a_flood(world, notes):
    """Otherwise a rejection could be hidden among many made-up ones."""
    flood = distinct(world.acme.id, is_verified=False)
    for one in itertools.islice(flood, 2 * PENDING_PER_ORG_MAX):
        notes.record(one)
    notes.record(rejection(world.acme.id, sub="repo:acme/real"))
    for one in itertools.islice(flood, 2 * PENDING_PER_ORG_MAX):
        notes.record(one)
    await notes.flush()

    rows = await remembered(world)
    assert len(rows) == PENDING_PER_ORG_MAX
    assert [row.sub for row in rows if row.is_verified] == ["repo:acme/real"]


async def test_verified_ones_are_bounded_too_and_make_room_for_no_unverified_one(world, notes):
    """Beyond the bound even what is true has to be dropped, and shows."""
    verified = distinct(world.acme.id, is_verified=True)
    for one in itertools.islice(verified, PENDING_PER_ORG_MAX + 3):
        notes.record(one)
    notes.record(rejection(world.acme.id, is_verified=False))
    await notes.flush()

    rows = await remembered(world)
    assert (len(rows), {row.is_verified for row in rows}) == (PENDING_PER_ORG_MAX, {True})
    assert dropped(world) == {"true": 3, "false": 1}


async def test_floods_of_all_organisations_together_are_bounded(world, notes):
    floods = PENDING_MAX // PENDING_PER_ORG_MAX + 2
    async with world.services.store.write() as work:
        orgs = [
            await create_org(work, f"flood-{number}", "org", BY_OPERATOR)
            for number in range(floods)
        ]
    for org in orgs:
        for one in itertools.islice(distinct(org.id, is_verified=False), PENDING_PER_ORG_MAX):
            notes.record(one)
    notes.record(rejection(world.acme.id, is_verified=False))
    notes.record(rejection(world.acme.id))
    await notes.flush()

    kept = [len(await remembered(world, org.id)) for org in orgs]
    assert sum(kept) == PENDING_MAX - 1
    assert [row.is_verified for row in await remembered(world)] == [True]
    assert dropped(world) == {"true": 0, "false": 2 * PENDING_PER_ORG_MAX + 2}


async def test_what_is_stored_is_bounded_and_the_oldest_unverified_go_first(world):
    """Verified ones push out unverified ones, and each other once they are alone; never reverse."""
    unverified = distinct(world.acme.id, is_verified=False)
    verified = distinct(world.acme.id, is_verified=True)

    async def stored() -> Counter[bool]:
        return Counter(row.is_verified for row in await remembered(world))

    await remember_all(world, itertools.islice(verified, 300))
    await remember_all(world, itertools.islice(unverified, 1_200))
    assert await stored() == {True: 300, False: 700}
    alleged = [row.sub for row in await remembered(world) if not row.is_verified]
    assert alleged == [f"repo:acme/alleged-{number}" for number in range(1_199, 499, -1)]

    await remember_all(world, itertools.islice(verified, 800))
    assert await stored() == {True: ENTRIES_PER_ORG_MAX}
    await remember_all(world, itertools.islice(unverified, 400))
    assert await stored() == {True: ENTRIES_PER_ORG_MAX}
    known = [row.sub for row in await remembered(world)]
    assert known == [f"repo:acme/known-{number}" for number in range(1_099, 99, -1)]


async def test_one_organisations_flood_is_its_own(world):
    oldest = next(distinct(world.other.id, is_verified=True))
    tomorrow = START + timedelta(days=1)
    newer = [rejection(world.other.id, sub=f"repo:other/{n}", at=tomorrow) for n in range(5)]
    await remember(world, oldest, *newer)

    source = distinct(world.acme.id, is_verified=True)
    await remember_all(world, itertools.islice(source, ENTRIES_PER_ORG_MAX + 10))

    assert len(await remembered(world)) == ENTRIES_PER_ORG_MAX
    assert len(await remembered(world, world.other.id)) == 6


async def test_what_was_last_seen_long_ago_is_forgotten(world, notes):
    edge = START - KEPT_FOR
    for org in (world.acme, world.other):
        await remember(
            world,
            rejection(org.id, at=edge - timedelta(microseconds=1)),
            rejection(org.id, at=edge, sub="repo:acme/edge"),
        )

    await notes.delete_expired()

    for org in (world.acme, world.other):
        assert [row.sub for row in await remembered(world, org.id)] == ["repo:acme/edge"]


async def test_the_background_writes_and_forgets(world, notes):
    await remember(world, rejection(world.acme.id, at=START - 2 * KEPT_FOR))
    notes.record(rejection(world.acme.id, sub="repo:acme/new"))
    stop = asyncio.Event()
    loops = (write_behind(world.services), housekeeping(world.services))
    rounds = asyncio.gather(*(loop.run(stop) for loop in loops))
    async with asyncio.timeout(HANG_S):
        while [row.sub for row in await remembered(world)] != ["repo:acme/new"]:
            await world.services.store.ping()
    stop.set()
    await rounds

    assert [row.sub for row in await remembered(world)] == ["repo:acme/new"]
