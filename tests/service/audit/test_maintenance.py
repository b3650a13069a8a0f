"""The sealer in the background: round after round, whatever happens in one."""

import asyncio
import contextlib
import itertools
import time
from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import func, select, update
from structlog.testing import capture_logs

from analytics.model.errors import StoreFault
from analytics.model.instants import utc_day
from analytics.storage.journal_batches import CorruptBatch
from service.app.background_jobs import sealing
from service.audit.maintenance import BackgroundJob, Maintenance
from service.store.catalog import list_live_segments
from service.store.journal import list_pending_days
from service.store.lease import LeaseTaken
from service.store.tables import JournalEntry, SegmentEntry
from tests.analytics.samples import sample_row
from tests.conftest import ADMIN_TOKEN, START, settings_over
from tests.other_programs import write_lock
from tests.polling import HANG_S


@pytest.fixture
def settings(tmp_path):
    """Rounds that follow each other at once."""
    return msgspec.structs.replace(
        settings_over(tmp_path), seal_interval_s=0.001, seal_rows=1, database_wait_s=1.0
    )


@contextlib.asynccontextmanager
async def running(audit):
    stop = asyncio.Event()
    rounds = asyncio.create_task(sealing(audit.services).run(stop))
    try:
        async with asyncio.timeout(HANG_S):
            yield
    finally:
        stop.set()
        await asyncio.wait_for(rounds, HANG_S)


async def _segment_ids(audit) -> list[str]:
    async with audit.services.store.read() as session:
        return list(await session.scalars(select(SegmentEntry.id)))


async def a_segment(audit) -> None:
    """Return once the catalog names a segment."""
    while not await _segment_ids(audit):
        pass


async def test_what_is_due_is_sealed_without_being_asked(audit):
    await audit.accept([sample_row(START - timedelta(days=1))])
    before = await audit.pages()

    async with running(audit):
        await a_segment(audit)

    assert await audit.pages() == before


async def test_a_round_that_fails_is_logged_and_the_next_one_tries_again(audit):
    await audit.accept([sample_row(START - timedelta(days=1))])
    before = await audit.pages()

    with write_lock(audit.services.settings.data_dir) as release, capture_logs() as logs:
        async with running(audit):
            while "maintenance_failed" not in {line["event"] for line in logs}:
                await audit.services.store.ping()
            release()
            audit.clock.advance(seconds=1)
            await a_segment(audit)

    assert await audit.pages() == before


async def test_a_job_that_fails_is_not_tried_again_before_its_time(audit):
    """What cannot be read would be read in vain, all the time."""
    tried = []

    async def fail() -> None:
        tried.append(audit.clock())
        raise StoreFault("damaged")

    stop = asyncio.Event()
    jobs = [BackgroundJob("fail", 60.0, fail)]
    rounds = Maintenance(jobs, 0.001, audit.clock, audit.services.metrics)
    running_rounds = asyncio.create_task(rounds.run(stop))
    async with asyncio.timeout(HANG_S):
        while len(tried) < 3:
            audit.clock.advance(seconds=20)
            await asyncio.sleep(0.01)
    stop.set()
    await running_rounds

    waited = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert min(waited) >= timedelta(seconds=60)


async def test_a_damaged_batch_keeps_no_other_day_from_being_sealed(audit):
    await audit.accept([sample_row(START)])
    await audit.accept([sample_row(START - timedelta(days=1))])
    await audit.accept([sample_row(START - timedelta(days=2))])
    async with audit.services.store.write() as work:
        await work.session.execute(
            update(JournalEntry)
            .where(JournalEntry.day == utc_day(START - timedelta(days=1)))
            .values(data=b"\x00")
        )

    with pytest.raises(StoreFault):
        await audit.services.sealer.seal_due(everything=True)

    async with audit.services.store.read() as session:
        left = await list_pending_days(session)
        sealed = set(await session.scalars(select(SegmentEntry.day)))
    assert {day for _, day, *_ in left} == {utc_day(START - timedelta(days=1))}
    assert {utc_day(START), utc_day(START - timedelta(days=2))} <= sealed


async def test_a_damaged_batch_keeps_no_other_row_of_its_day_from_being_sealed(audit):
    """In a segment its rows would look like any others."""
    await audit.seal()
    for name in ("first", "second", "third"):
        await audit.accept([sample_row(START, package_name=name)])
    async with audit.services.store.write() as work:
        damaged = await work.session.scalar(select(func.max(JournalEntry.first_seq) - 1))
        row = await work.session.get_one(JournalEntry, damaged)
        content = bytearray(row.data)
        content[len(content) // 2] ^= 1
        row.data = bytes(content)

    with pytest.raises(CorruptBatch, match=f"{START.date()}, seq {damaged} to {damaged}"):
        await audit.services.sealer.seal_due(everything=True)

    async with audit.services.store.read() as session:
        assert list(await session.scalars(select(JournalEntry.first_seq))) == [damaged]
        sealed = await list_live_segments(session, audit.world.acme.id)
    assert [s.rows for s in sealed if s.min_seq <= damaged <= s.max_seq] == [2]


async def test_a_journal_that_grows_large_is_sealed_without_waiting_for_the_next_round(audit):
    """Rows come in faster than a round comes round: 5 seconds of them are more than enough."""
    sealer = audit.services.sealer
    async with _rounds(audit, BackgroundJob("seal", 3_600.0, sealer.seal_due, sealer.wanted)):
        while not await _segment_ids(audit):
            answer = await audit.world.client.post(
                "/api/v1/admin/orgs/acme/audit/events",
                data=b'[{"event":"install_allowed","packageName":"a"}]',
                headers={"x-service-admin-token": ADMIN_TOKEN, "content-type": "application/json"},
            )
            assert answer.status_code == 200


async def test_a_job_that_fails_waits_for_its_time_even_when_it_is_wanted(audit):
    """On a full disk each request would start another attempt."""
    tries = asyncio.Queue()

    async def fail() -> None:
        tries.put_nowait(audit.clock())
        raise StoreFault("damaged")

    job = BackgroundJob("fail", 60.0, fail)
    async with _rounds(audit, job, interval_s=0.001):
        await tries.get()
        for _ in range(20):
            job.wanted.set()
            await asyncio.sleep(0.005)
        assert tries.empty()
        audit.clock.advance(seconds=61)
        await tries.get()


async def test_a_job_that_found_the_lease_taken_runs_again_when_it_is_wanted(audit):
    """Several processes seal: a journal that fills up must not wait for the next round."""
    outcomes = [None, LeaseTaken(), None]
    tries = asyncio.Queue()

    async def run() -> None:
        outcome = outcomes.pop(0)
        tries.put_nowait(outcome)
        if outcome is not None:
            raise outcome

    job = BackgroundJob("seal", 2 * HANG_S, run)
    async with _rounds(audit, job, interval_s=0.001):
        assert await tries.get() is None
        job.wanted.set()
        assert isinstance(await tries.get(), LeaseTaken)
        job.wanted.set()
        assert await asyncio.wait_for(tries.get(), HANG_S) is None


async def test_rounds_follow_each_other_while_there_is_more_to_do(audit):
    """A backlog is worked off at once, not one piece every few seconds."""
    left = [1, 2, 3, 4, 5]
    done = asyncio.Event()

    async def work() -> bool:
        left.pop()
        if not left:
            done.set()
        return bool(left)

    async with _rounds(audit, BackgroundJob("work", 0.0, work)):
        await done.wait()
    assert left == []


@contextlib.asynccontextmanager
async def _rounds(audit, job, interval_s=3_600.0):
    """`job`, running, in rounds that follow each other after `interval_s`."""
    stop = asyncio.Event()
    maintenance = Maintenance([job], interval_s, audit.clock, audit.services.metrics)
    rounds = asyncio.create_task(maintenance.run(stop))
    async with asyncio.timeout(HANG_S):
        yield
    stop.set()
    await asyncio.wait_for(rounds, HANG_S)


async def test_a_job_that_does_not_end_is_overdue_after_ten_intervals(audit):
    """Its process is then started again with more of the processor."""
    begun, end, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await end.wait()

    services = audit.services
    jobs = Maintenance([BackgroundJob("long", 60.0, work)], 1.0, services.clock, services.metrics)
    rounds = asyncio.create_task(jobs.run(stop))
    await begun.wait()
    since = time.monotonic()

    assert not jobs.is_overdue(since + 590)
    assert jobs.is_overdue(since + 601)
    assert not jobs.has_caught_up
    stop.set()
    end.set()
    await rounds
    assert jobs.has_caught_up
