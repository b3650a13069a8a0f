"""Two sealers, and readers in between: every row exactly once at every moment."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from sqlalchemy import select

from analytics.cache.lru import ByteCache
from analytics.model.filters import Query
from service.audit.lease import LeaseLost, LeaseTaken
from service.composition import Services
from service.store.snapshots import snapshot
from service.store.tables import JournalEntry, SegmentEntry
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.databases import DirectTransaction
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
    """Any number of processes may run one."""
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


async def test_rows_that_another_process_sealed_are_not_sealed_again(filled, monkeypatch):
    """Even under a lease that holds: the journal rows must still be there."""
    rows = await stored(filled)
    lose_rows = "UPDATE journal SET first_seq = first_seq + 1000000"
    at_the_rename(monkeypatch, by_hand(filled, lose_rows))

    with pytest.raises(LeaseLost, match="another process"):
        await filled.seal()

    assert await stored(filled) == rows


async def test_another_worker_that_starts_meanwhile_leaves_the_uncommitted_file_alone(
    filled, clock, monkeypatch
):
    """Renamed and not yet committed, it looks like an orphan to other processes."""
    before = await filled.pages()
    cleared: list[int] = []  # what a sweeper that was let in removed
    clock.now = START + timedelta(days=1)

    async def clear_orphans(worker: Services) -> None:
        with contextlib.suppress(LeaseTaken):
            cleared.append(await worker.garbage_collector.clear_orphans())

    at_the_rename(monkeypatch, by_another_worker(filled, clear_orphans))

    assert await filled.seal() > 0
    assert cleared == []
    assert await filled.pages() == before


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
    rows = await filled.services.lake.query(lambda reader: reader.page(seen, Query(), 1000, None))
    assert rows.column("seq").to_pylist() == expected
    assert await filled.services.lake.query(lambda reader: reader.count(seen, Query())) == len(
        expected
    )


async def test_a_read_transaction_stays_at_its_instant(filled, worker):
    """Whatever is sealed or accepted while it is open."""
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

    assert await filled.services.lake.query(lambda reader: reader.count(seen, Query())) == len(
        before
    )
