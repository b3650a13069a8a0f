"""Snapshots remember lines and batches, and never which of them there are."""

from datetime import timedelta

import pytest
from sqlalchemy import event

from analytics.cache.lru import ByteCache
from service.store.catalog import list_segments, retire_segments
from service.store.snapshots import snapshot
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.store.conftest import add_org


@pytest.fixture
async def filled(audit):
    """Three days in segments, one in the journal."""
    for days in (1, 2, 3):
        await audit.accept([sample_row(START - timedelta(days=days))])
    await audit.seal()
    await audit.accept([sample_row(START)])
    return audit


@pytest.mark.parametrize("room", [0, 2_100, 2**20])
async def test_what_is_kept_is_what_is_stored(filled, room):
    """With room for nothing, for one line, and for all."""
    kept = ByteCache(room)
    seen = []
    for _ in range(3):
        async with filled.services.store.read() as session:
            seen.append(await snapshot(session, filled.world.acme.id, kept))

    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0].segments) == 4
    assert len(seen[0].batches) == 1
    assert kept.size <= room


async def test_a_second_snapshot_reads_no_line_and_no_batch_again(filled):
    """A year of days is 365 lines; reading them took longer than finding the page.

    Which there are is read only after a commit, of whatever.
    """
    store = filled.services.store
    await store.snapshot(filled.world.acme.id)
    said = []
    reader = store._engines.reader.sync_engine
    event.listen(reader, "before_cursor_execute", lambda c, cursor, text, *rest: said.append(text))

    await store.snapshot(filled.world.acme.id)
    assert not said
    await add_org(store, "elsewhere")
    await store.snapshot(filled.world.acme.id)

    assert not [text for text in said if "event_counts" in text or "journal.data" in text]
    assert len([text for text in said if text.startswith("SELECT")]) == 1


async def test_a_retired_segment_is_gone_although_its_line_is_kept(filled):
    """Which there are is read each time."""
    store, acme = filled.services.store, filled.world.acme.id
    before = await store.snapshot(acme)
    async with store.write() as work:
        gone = await list_segments(work.session, acme, before.segments[0].day)
        await retire_segments(work.session, gone, work.now)

    after = await store.snapshot(acme)

    assert list(after.segments) == [one for one in before.segments if one not in gone]
    assert gone


async def test_another_tenant_is_not_served_what_is_kept(filled):
    """The tenant decides what is looked up."""
    store = filled.services.store
    await store.snapshot(filled.world.acme.id)

    seen = await store.snapshot(filled.world.other.id)

    assert {segment.tenant_id for segment in seen.segments} == {filled.world.other.id}
    assert seen.batches == ()
