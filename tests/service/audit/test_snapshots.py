"""Snapshots remember lines and batches, and never which of them there are."""

import sqlite3
from datetime import timedelta

import pytest

from analytics.cache.lru import ByteCache
from analytics.storage.journal_batches import decode_batches
from service.core.errors import StoreUnavailable
from service.store.catalog import list_segments, retire_segments
from service.store.snapshots import snapshot
from service.store.transaction import within
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START
from tests.databases import DirectTransaction
from tests.service.store.conftest import add_org


@pytest.fixture
async def filled(audit):
    """Three days in segments, one in the journal."""
    for days in (1, 2, 3):
        await audit.accept([sample_row(START - timedelta(days=days))])
    await audit.seal()
    await audit.accept([sample_row(START)])
    return audit


@sample(3)
@pytest.mark.parametrize("room", [0, 2_100, 2**20])
async def test_what_is_kept_is_what_is_stored(filled, room):
    kept = ByteCache(room)
    seen = []
    for _ in range(3):
        async with filled.services.store.read() as session:
            seen.append(await within(session, snapshot, filled.world.acme.id, kept))

    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0].segments) == 4
    assert len(seen[0].batches) == 1
    assert kept.size <= room


async def test_segments_come_newest_first_and_as_the_same_tuple_while_they_last(filled):
    """A busy day has thousands; comparing each for each page takes milliseconds."""
    store, acme = filled.services.store, filled.world.acme.id
    before = await store.snapshot(acme)
    await filled.accept([sample_row(START)])
    same = await store.snapshot(acme)
    await filled.seal()
    after = await store.snapshot(acme)

    ends = [segment.max_created_at for segment in after.segments]
    assert ends == sorted(ends, reverse=True)
    assert len(same.batches) == len(before.batches) + 1
    assert same.segments is before.segments
    assert len(after.segments) == len(before.segments) + 1
    assert all(segment in after.segments for segment in before.segments)


async def test_batches_come_as_the_same_tuple_while_they_last(filled):
    store, acme = filled.services.store, filled.world.acme.id
    before = await store.snapshot(acme)
    await filled.accept([sample_row(START)], filled.world.other)
    same = await store.snapshot(acme)
    await filled.accept([sample_row(START)])
    longer = await store.snapshot(acme)
    await filled.seal()
    sealed = await store.snapshot(acme)

    assert same.watermark > before.watermark
    assert same.batches is before.batches
    (first,) = before.batches
    assert longer.batches[0] is first
    assert [batch.first_seq - first.first_seq for batch in longer.batches] == [0, 2]
    assert sealed.batches == ()


@pytest.fixture
def statements(monkeypatch):
    """The SQL that transactions execute in one trip."""
    executed: list[str] = []
    execute = DirectTransaction.execute

    def recording(transaction, sql, *values):
        executed.append(sql)
        return execute(transaction, sql, *values)

    monkeypatch.setattr(DirectTransaction, "execute", recording)
    return executed


@pytest.mark.sqlite_only(reason="records the statements of its own way to execute")
async def test_a_second_snapshot_reads_no_line_and_no_batch_again(filled, statements):
    """A year of days is 365 lines; reading them took longer than finding the page."""
    store = filled.services.store
    await store.snapshot(filled.world.acme.id)
    assert [text for text in statements if "event_counts" in text]
    statements.clear()

    await store.snapshot(filled.world.acme.id)
    assert not statements
    await add_org(store, "elsewhere")
    await store.snapshot(filled.world.acme.id)

    assert not [text for text in statements if "event_counts" in text or "journal.data" in text]
    assert len([text for text in statements if text.startswith("SELECT")]) == 3


async def test_what_was_committed_in_one_trip_is_not_read_again(filled, statements):
    store, acme = filled.services.store, filled.world.acme.id
    await store.snapshot(acme)
    statements.clear()

    await store.write_at_once(
        lambda work: work.journal.add(acme, [sample_row(START, package_name="new")])
    )
    seen = await store.snapshot(acme)

    assert not [text for text in statements if "journal.data" in text and "SELECT" in text]
    async with store.read() as session:
        assert await within(session, snapshot, acme, ByteCache(0)) == seen
    assert len(seen.batches) == 2


@pytest.mark.sqlite_only(reason="breaks its own way to commit")
async def test_a_commit_that_fails_leaves_nothing_behind(filled, monkeypatch):
    """The next rows get the seq that the failed ones had."""
    store, acme = filled.services.store, filled.world.acme.id
    execute = DirectTransaction.execute

    def failing(transaction, sql, *values):
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return execute(transaction, sql, *values)

    async def add(package: str) -> None:
        await store.write_at_once(
            lambda work: work.journal.add(acme, [sample_row(START, package_name=package)])
        )

    with monkeypatch.context() as patch:
        patch.setattr(DirectTransaction, "execute", failing)
        with pytest.raises(StoreUnavailable):
            await add("lost")
    await add("stored")
    seen = await store.snapshot(acme)

    rows = decode_batches(seen.batches)
    assert "stored" in rows["package_name"].to_pylist()
    assert "lost" not in rows["package_name"].to_pylist()


async def test_a_retired_segment_is_gone_although_its_line_is_kept(filled):
    store, acme = filled.services.store, filled.world.acme.id
    before = await store.snapshot(acme)
    async with store.write() as work:
        gone = await list_segments(work.session, acme, before.segments[0].day)
        await retire_segments(work.session, gone, work.now)

    after = await store.snapshot(acme)

    assert list(after.segments) == [one for one in before.segments if one not in gone]
    assert gone


async def test_another_tenant_is_not_served_what_is_kept(filled):
    store = filled.services.store
    await store.snapshot(filled.world.acme.id)

    seen = await store.snapshot(filled.world.other.id)

    assert {segment.tenant_id for segment in seen.segments} == {filled.world.other.id}
    assert seen.batches == ()
