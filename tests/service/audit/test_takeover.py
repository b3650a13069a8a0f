"""Two sealers, and readers in between: every row exactly once at every moment."""

import asyncio
import os
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from analytics.cache.lru import ByteCache
from analytics.model.filters import Query
from service.app.composition import Services
from service.store.lease import SEAL, LeaseLost, LeaseTaken
from service.store.snapshots import snapshot
from service.store.tables import JournalEntry, SegmentEntry
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.databases import DirectTransaction
from tests.other_programs import execute
from tests.polling import eventually
from tests.service.audit.conftest import start_worker
from tests.service.audit.meanwhile import TAKE_OVER, at_the_rename, by_another_worker, by_hand
from tests.service.store.conftest import add_org

EVENT = "blocklist_hit"


@pytest.fixture
async def filled(audit):
    for n in range(3):
        await audit.accept([sample_row(START, package_name=f"p{n}")] * 4)
    return audit


async def stored(audit) -> tuple[int, int]:
    """Rows in the journal and rows in segments, by the database's own account."""
    async with audit.services.store.read() as session:
        journal = sum(await session.scalars(select(JournalEntry.rows)))
        return journal, sum(await session.scalars(select(SegmentEntry.rows)))


async def test_sealers_that_start_together_seal_every_row_once(filled, settings, clock):
    before = await filled.pages()
    workers = [start_worker(settings, clock) for _ in range(4)]
    try:
        sealed = await asyncio.gather(
            *(worker.sealer.seal_due(everything=True) for worker in workers),
            filled.services.sealer.seal_due(everything=True),
            return_exceptions=True,
        )
    finally:
        for worker in workers:
            await worker.close()

    segments = [segment for some in sealed if isinstance(some, list) for segment in some]
    assert all(isinstance(some, list | LeaseTaken) for some in sealed)
    assert await stored(filled) == (0, sum(segment.rows for segment in segments))
    assert await filled.pages() == before


async def test_a_sealer_that_lost_its_lease_while_writing_commits_nothing(filled, monkeypatch):
    """The epoch is checked in the commit itself: between write and commit a lease can go."""
    before = await filled.pages()
    rows = await stored(filled)
    at_the_rename(monkeypatch, by_hand(filled, TAKE_OVER))

    with pytest.raises(LeaseLost):
        await filled.seal()

    assert await stored(filled) == rows
    assert await filled.pages() == before


async def test_a_sealer_keeps_its_lease_while_it_writes(filled, settings, clock, monkeypatch):
    """To a slow bucket that takes longer than the lease lasts: two nodes would never commit."""
    quick = msgspec.structs.replace(settings, lease_s=0.06)
    worker = start_worker(quick, clock)

    def expires_at() -> Any:
        ((found,),) = execute(
            quick.data_dir, "SELECT expires_at FROM leases WHERE name = ?", [SEAL]
        )
        return found

    def wait_for_renewal() -> None:
        before = expires_at()
        clock.advance(seconds=1)
        eventually(lambda: expires_at() > before, "the lease is renewed")

    at_the_rename(monkeypatch, wait_for_renewal)
    try:
        assert await worker.sealer.seal_due(everything=True)
    finally:
        await worker.close()


async def test_rows_that_another_process_sealed_are_not_sealed_again(filled, monkeypatch):
    rows = await stored(filled)
    lose_rows = "UPDATE journal SET first_seq = first_seq + 1000000"
    at_the_rename(monkeypatch, by_hand(filled, lose_rows))

    with pytest.raises(LeaseLost, match="another process"):
        await filled.seal()

    assert await stored(filled) == rows


@pytest.mark.parametrize("paused_s", [0, 4_000], ids=["shortly", "beyond the grace"])
async def test_a_sealer_that_is_paused_before_its_commit_loses_and_doubles_nothing(
    filled, monkeypatch, paused_s
):
    """Its file looks like an orphan to a sweep, which has another lease and does not wait.

    Young, the file stays. Later it may be removed, and the sealer then must not commit it.
    """
    before = await filled.pages()
    rows = await stored(filled)
    seal_again = partial(filled.services.sealer.seal_due, everything=True)
    cleared: list[int] = []

    async def others_work(worker: Services) -> None:
        for file in filled.services.settings.audit_dir.rglob("seg_*"):
            written_s = filled.clock().timestamp() - paused_s
            os.utime(file, (written_s, written_s))
        await worker.compactor.compact_due(everything=True)
        await worker.pruner.prune_in_background()
        cleared.append(await worker.garbage_collector.clear_orphans())
        await worker.garbage_collector.unlink_retired()

    at_the_rename(monkeypatch, by_another_worker(filled, others_work))

    if paused_s:
        with pytest.raises(LeaseLost):
            await seal_again()
        assert await stored(filled) == rows
    else:
        assert await seal_again() != []
    assert cleared == [2 if paused_s else 0]  # the file and its index
    assert await filled.pages() == before
    await seal_again()
    assert await stored(filled) == (0, sum(rows))
    assert await filled.pages() == before


async def test_a_sealer_is_paused_while_its_day_is_pruned(filled, monkeypatch):
    """What is deleted meanwhile does not come back as a segment."""
    rows = await stored(filled)
    at_the_rename(monkeypatch, by_hand(filled, "DELETE FROM journal"))

    with pytest.raises(LeaseLost):
        await filled.seal()

    assert await stored(filled) == (0, rows[1])


async def test_sealing_does_not_wait_for_a_merge(filled, worker):
    async with worker.lease.hold():
        assert await filled.seal() > 0


async def test_a_seal_that_commits_between_the_reads_of_a_snapshot_is_not_seen(filled, monkeypatch):
    """Without an explicit BEGIN its rows would be missing from both reads, or in both."""
    expected = [int(entry["id"][4:]) for entry in await filled.pages()]
    execute = DirectTransaction.execute
    pending = [by_another_worker(filled, lambda worker: worker.sealer.seal_due(everything=True))]

    def seal_between(transaction, sql, *values):
        if "FROM journal" in sql and pending:
            pending.pop()()
        return execute(transaction, sql, *values)

    await add_org(filled.services.store, "elsewhere")  # or nothing would be read at all
    with monkeypatch.context() as patch:
        patch.setattr(DirectTransaction, "execute", seal_between)
        seen = await filled.services.store.snapshot(filled.world.acme.id)

    assert not pending
    assert (await stored(filled))[0] == 0
    queries = filled.services.lake.queries
    rows = await queries.run(lambda reader: reader.page(seen, Query(), 1000, None))
    assert rows.column("seq").to_pylist() == expected
    assert await queries.run(lambda reader: reader.count(seen, Query())) == len(expected)


async def test_a_read_transaction_stays_at_its_instant(filled, worker):
    async with filled.services.store.read() as session:
        first = await within(session, snapshot, filled.world.acme.id, ByteCache(0))
        await worker.sealer.seal_due(everything=True)
        await filled.accept([sample_row(START)])
        again = await within(session, snapshot, filled.world.acme.id, ByteCache(0))

    assert again == first


async def test_a_snapshot_taken_before_a_seal_can_be_read_after_it(filled):
    """It carries its journal rows; what was copied cannot be deleted under a reader."""
    before = await filled.pages()
    seen = await filled.services.store.snapshot(filled.world.acme.id)
    await filled.seal()

    count = await filled.services.lake.queries.run(lambda reader: reader.count(seen, Query()))
    assert count == len(before)
