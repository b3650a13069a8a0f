"""Rows that were given up: a difference once, which neither retention nor a crash repeats."""

from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import update

from analytics.model.instants import utc_day
from service.audit.backup.segment_restore import give_up
from service.store.catalog import list_live_segments
from service.store.tables import EvidenceTree, JournalEntry, LostSegment
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import BY_OPERATOR, START
from tests.crashes import PowerCut, power_cut_after
from tests.service.audit.evidence.proving import answer, prove, refusal, sign
from tests.service.audit.pruning import DAY, always_on
from tests.service.audit.pruning import prune as prune_days

LOST_DAY = START - 2 * DAY
STRIDE = budget(3, 1)
"""Between the steps at which a crash is tried."""


@pytest.fixture
async def lossy(audit):
    """Acme with 400 rows of three days each; a segment of 400 rows was signed and given up."""
    await always_on(audit, "free")
    for days_ago in (3, 2, 1):
        at = START - days_ago * DAY
        await audit.accept([sample_row(at, version=str(n)) for n in range(400)])
    await audit.seal()
    await sign(audit)
    async with audit.services.store.read() as session:
        segments = await list_live_segments(session, audit.world.acme.id)
    (segment,) = (each for each in segments if each.day == utc_day(LOST_DAY))
    segment.path(audit.services.settings.audit_dir).unlink()
    await give_up(audit.services, segment, BY_OPERATOR)
    await sign(audit)
    return audit


async def compare(audit) -> list[str]:
    """As the job does: differences are recorded."""
    monitor = audit.services.monitor
    comparison = await monitor.compare(audit.world.acme.id)
    await monitor.record(comparison, BY_OPERATOR)
    return comparison.differences


async def min_index(audit) -> int:
    async with audit.services.store.read() as session:
        return (await session.get_one(EvidenceTree, audit.world.acme.id)).min_index


async def prune_all(audit) -> int:
    """Later, when all days of before are past retention; the number of leaves then."""
    audit.clock.advance(seconds=timedelta(days=40).total_seconds())
    await audit.accept([sample_row(audit.clock())])
    await sign(audit)
    await prune_days(audit)
    return (await answer(audit, "/checkpoint"))["size"]


async def test_lost_rows_are_a_difference_once(lossy):
    differences = await compare(lossy)
    assert len(differences) == 3  # the groups of 256 that the rows were in
    assert all("were signed" in each for each in differences)
    assert await compare(lossy) == []
    (row,) = await lossy.pages(event="evidence_differs")
    assert row["payload"]["count"] == 3


async def test_other_rows_of_the_same_groups_are_proved_no_more(lossy):
    rows = await lossy.pages(event="blocklist_hit", limit=1000)
    first, last = min(rows, key=lambda row: row["id"]), max(rows, key=lambda row: row["id"])
    await compare(lossy)
    await prove(lossy, first)
    await prove(lossy, last)
    behind = sorted(row["id"] for row in rows)[400]
    assert (await refusal(lossy, f"/{behind}/proof"))[0] == 503


async def test_what_is_changed_beside_lost_rows_is_still_named(lossy):
    await compare(lossy)
    async with lossy.services.store.read() as session:
        (segment, *_) = await list_live_segments(session, lossy.world.acme.id)
    segment.path(lossy.services.settings.audit_dir).unlink()
    assert any(segment.segment_id in each for each in await compare(lossy))


async def test_rows_that_are_added_beside_lost_ones_stay_a_difference(lossy):
    """Rows of another organisation, for one, whose seqs are between those of one's own."""
    acme, other = lossy.world.acme.id, lossy.world.other
    await lossy.accept([sample_row(START)], other)
    await lossy.accept([sample_row(START)])
    await sign(lossy)
    async with lossy.services.store.write() as work:
        moved = update(JournalEntry).where(
            JournalEntry.tenant_id == other.id, JournalEntry.first_seq > 100
        )
        await work.session.execute(moved.values(tenant_id=acme))
        # As if the lost rows had been around them.
        await work.session.execute(update(LostSegment).values(max_seq=LostSegment.max_seq + 10_000))
    for _ in range(3):
        differences = await compare(lossy)
    assert any("are stored" in text for text in differences)


@pytest.mark.parametrize("is_compared", [False, True])
async def test_lost_rows_do_not_stop_retention(lossy, is_compared):
    """Also if their day is dropped before anyone compared them, and with all that is kept of it."""
    if is_compared:
        await compare(lossy)
    size = await prune_all(lossy)
    assert await compare(lossy) == []
    assert await min_index(lossy) == size // 256 * 256 == 1024


async def test_days_that_are_dropped_one_after_the_other_leave_no_difference(lossy):
    """A day at a time: the one before the lost day, that day, and the one behind it."""
    await compare(lossy)
    lossy.clock.advance(seconds=timedelta(days=10).total_seconds())
    dropped = 0
    for _ in range(20):
        lossy.clock.advance(seconds=DAY.total_seconds())
        dropped += len(await prune_days(lossy))
        assert await compare(lossy) == []
    assert dropped >= 3


async def test_a_segment_that_is_damaged_when_its_day_is_dropped_leaves_no_difference(lossy):
    """Its rows go without hashes: it was not given up, and cannot be any more."""
    await compare(lossy)
    async with lossy.services.store.read() as session:
        live = await list_live_segments(session, lossy.world.acme.id)
    (segment,) = (each for each in live if each.day == utc_day(START - DAY))
    path = segment.path(lossy.services.settings.audit_dir)
    path.write_bytes(b"x" + path.read_bytes()[1:])
    await prune_all(lossy)
    assert await compare(lossy) == []
    size = await prune_all(lossy)  # what is lost of a group is looked at again by the next run
    assert await compare(lossy) == []
    assert await min_index(lossy) == size // 256 * 256


async def test_a_segment_that_cannot_be_read_now_is_not_lost(lossy):
    """The groups are the same: what is restored later must be compared again."""
    async with lossy.services.store.read() as session:
        live = await list_live_segments(session, lossy.world.acme.id)
    root = lossy.services.settings.audit_dir
    (segment,) = (each for each in live if each.day == utc_day(START - DAY))
    content = segment.path(root).read_bytes()
    segment.path(root).unlink()
    assert await compare(lossy) != []
    segment.path(root).write_bytes(content)
    assert len(await compare(lossy)) == 3
    assert await compare(lossy) == []


async def test_a_crash_at_any_step_counts_a_loss_once(lossy):
    for steps in count(step=STRIDE):
        try:
            with power_cut_after(steps, lossy.services.store):
                await compare(lossy)
        except PowerCut:
            rows = len(await lossy.pages(event="evidence_differs"))
            again = (await lossy.services.monitor.compare(lossy.world.acme.id)).differences
            assert (rows, len(again)) in {(0, 3), (1, 0)}
        else:
            break
    assert steps > 5
    assert len(await lossy.pages(event="evidence_differs")) == 1


async def test_a_crash_at_any_step_of_pruning_leaves_no_difference(lossy):
    lossy.clock.advance(seconds=timedelta(days=40).total_seconds())
    await lossy.accept([sample_row(lossy.clock())])
    await sign(lossy)
    await compare(lossy)
    for steps in count(step=STRIDE):
        try:
            with power_cut_after(steps, lossy.services.store):
                await prune_days(lossy)
        except PowerCut:
            assert (await lossy.services.monitor.compare(lossy.world.acme.id)).differences == []
        else:
            break
    assert steps > 10
    assert await compare(lossy) == []
    size = (await answer(lossy, "/checkpoint"))["size"]
    assert await min_index(lossy) == size // 256 * 256
