"""The sealer: when it seals, and that queries do not notice."""

import itertools
import os
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

import msgspec
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select, update

from analytics.model.errors import StoreFault
from analytics.model.instants import utc_day
from analytics.storage.journal_batches import encode_days
from analytics.storage.layout import segment_path
from service.audit import sealer
from service.audit.sealer import BYTES_MAX, TOGETHER_MAX, PendingDay, together
from service.store.journal import JournalSize, count_journal
from service.store.lease import HeldLease
from service.store.store import UnitOfWork
from service.store.tables import JournalEntry, SegmentEntry
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START, settings_over

SEAL_ROWS = 40
SEAL_AGE_S = 900.0
GRACE_S = 3600.0
EVENT = "blocklist_hit"
TODAY = utc_day(START)


@pytest.fixture
def settings(tmp_path):
    """Small enough to reach every threshold; the world itself writes fewer rows than that."""
    return msgspec.structs.replace(
        settings_over(tmp_path),
        seal_rows=SEAL_ROWS,
        seal_age_s=SEAL_AGE_S,
        orphan_grace_s=GRACE_S,
    )


def rows(count: int, days_ago: int = 0):
    at = START - timedelta(days=days_ago)
    return [sample_row(at, package_name=f"p{n}") for n in range(count)]


async def due(audit) -> list[tuple[str, str]]:
    """Seal what is due; tenant and day of each segment."""
    segments = await audit.services.sealer.seal_due()
    return [(s.tenant_id, s.day.isoformat()) for s in segments]


async def found(audit, **query) -> list[str]:
    """The ids of all blocked installs, sealed or not."""
    return [entry["id"] for entry in await audit.pages(event=EVENT, limit=7, **query)]


async def test_a_young_small_day_is_left_in_the_journal(audit):
    """Journal rows are as visible as sealed ones."""
    await audit.accept(rows(3))

    assert await due(audit) == []


async def test_a_day_that_has_grown_large_is_sealed(audit):
    acme = audit.world.acme.id
    already = len(await audit.pages())
    await audit.accept(rows(SEAL_ROWS - already - 1))
    assert await due(audit) == []

    await audit.accept(rows(1))

    assert await due(audit) == [(acme, TODAY.isoformat())]


async def test_small_days_are_sealed_once_they_are_many_rows_together(audit):
    """A query reads the whole journal of its organisation, over however many days it is spread."""
    room = SEAL_ROWS - 1 - len(await audit.pages())
    await audit.accept([*rows(room // 2, 1), *rows(room - room // 2, 2)])
    assert await due(audit) == []

    await audit.accept(rows(1, 3))

    sealed_days = {TODAY - timedelta(days=ago) for ago in range(4)}
    assert {day for _, day in await due(audit)} == {day.isoformat() for day in sealed_days}


async def test_few_rows_of_many_bytes_are_sealed(audit, monkeypatch):
    (row,) = rows(1)
    size = encode_days([row])[0].size
    before = await audit.services.store.read_at_once(
        partial(count_journal, tenant_id=audit.world.acme.id)
    )
    monkeypatch.setattr(sealer, "BYTES_MAX", before.bytes + 2 * size)
    await audit.accept(rows(1, 1))
    assert await due(audit) == []

    await audit.accept(rows(1, 2))

    assert len({day for _, day in await due(audit)}) == 3


async def test_a_large_day_does_not_hurry_small_ones(audit):
    """Each of them would be a file with every large one."""
    await audit.accept([*rows(SEAL_ROWS, 1), *rows(1, 2)])

    assert {day for _, day in await due(audit)} == {(TODAY - timedelta(days=1)).isoformat()}


async def test_a_day_that_has_waited_long_is_sealed(audit):
    await audit.accept(rows(1))
    audit.clock.advance(seconds=SEAL_AGE_S, microseconds=-1)
    assert await due(audit) == []

    audit.clock.advance(microseconds=1)

    assert {day for _, day in await due(audit)} == {TODAY.isoformat()}


async def test_sealing_twice_seals_once(audit):
    await audit.accept(rows(5))

    assert await audit.seal() == 2  # acme's and the other organisation's day
    assert await audit.seal() == 0


@sample(2)
@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_rows_are_seen_exactly_once_before_and_after(audit, order):
    for days_ago in (0, 1, 2, 1, 0):
        await audit.accept(rows(5, days_ago))
    before = await audit.pages(order=order)

    assert await audit.seal() == 4
    assert await audit.pages(order=order) == before
    await audit.accept(rows(2, 1))
    assert len(await found(audit)) == 27
    await audit.seal()
    assert len(await found(audit)) == 27


async def test_a_segment_lies_where_the_layout_says_and_the_catalog_tells_its_size(audit):
    await audit.accept(rows(5))
    segments = await audit.services.sealer.seal_due(everything=True)
    root = audit.services.settings.audit_dir

    for segment in segments:
        path = segment_path(root, segment.tenant_id, segment.day, segment.segment_id)
        assert path.stat().st_size == segment.size
        assert pq.ParquetFile(path).metadata.num_rows == segment.rows
    assert sum(segment.rows for segment in segments) == len(await audit.pages()) + len(
        await audit.pages(slug="other")
    )


async def test_one_organisations_rows_never_lie_in_anothers_segment(audit):
    await audit.accept(rows(5))
    await audit.accept(rows(3), audit.world.other)
    segments = await audit.services.sealer.seal_due(everything=True)

    counts = {s.tenant_id: s.event_counts[EVENT] for s in segments}
    assert counts == {audit.world.acme.id: 5, audit.world.other.id: 3}


def stray_file(audit, age_s: float, name: str = "seg_stray.parquet"):
    """A file no catalog line names, last written `age_s` ago by the service's clock."""
    folder = next(audit.services.settings.audit_dir.glob("tenant=*/day=*"))
    path = folder / name
    path.write_bytes(b"PAR1")
    at = audit.clock().timestamp() - age_s
    os.utime(path, (at, at))
    return path


@pytest.mark.parametrize(
    "name",
    ["seg_stray.parquet", "seg_stray.pending", "seg_stray.index", ".seg_stray.index.pending"],
)
async def test_an_orphan_goes_once_the_grace_is_over(audit, name):
    await audit.seal()
    path = stray_file(audit, GRACE_S + 1, name)

    assert await audit.services.garbage_collector.clear_orphans() == 1
    assert not path.exists()


async def test_an_orphan_stays_within_the_grace(audit):
    """It may be another worker's, renamed and about to be committed."""
    await audit.seal()
    path = stray_file(audit, GRACE_S - 1)

    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert path.exists()


async def test_a_retired_file_is_read_no_more_and_yet_no_orphan(audit):
    """Readers whose snapshot names it may still read it."""
    await audit.accept(rows(5))
    await audit.seal()
    async with audit.services.store.write() as work:
        await work.session.execute(update(SegmentEntry).values(retired_at=work.now))
    audit.clock.advance(days=300)

    assert await found(audit) == []
    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert list(audit.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))


async def test_a_file_the_catalog_names_is_no_orphan_however_old(audit):
    await audit.accept(rows(5))
    await audit.seal()
    audit.clock.advance(days=300)

    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert len(await found(audit)) == 5


async def test_rows_that_cannot_be_sealed_keep_no_other_day_waiting(audit):
    """What a damaged batch says may be of another day; no other journal grows."""
    await audit.seal()
    await audit.accept(rows(3, days_ago=9))
    await audit.accept(rows(2, days_ago=1))
    await audit.accept(rows(2), audit.world.other)
    async with audit.services.store.write() as work:
        damaged = JournalEntry.day == TODAY - timedelta(days=9)
        await work.session.execute(
            update(JournalEntry).where(damaged).values(day=TODAY - timedelta(days=8))
        )

    with pytest.raises(StoreFault, match="checksum"):
        await audit.services.sealer.seal_due(everything=True)

    async with audit.services.store.read() as session:
        left = await session.scalars(select(JournalEntry.day))
        assert list(left) == [TODAY - timedelta(days=8)]


async def test_long_rows_are_sealed_a_bounded_number_of_bytes_at_a_time(audit, monkeypatch):
    """Packed they are next to nothing; unpacked they would end the process, and every restart."""
    await audit.seal()
    monkeypatch.setattr("service.audit.sealer.SEGMENT_BYTES_MAX", 3_500_000)
    for _ in range(7):
        await audit.accept([sample_row(payload=f'{{"registry":"{"a" * 1_000_000}"}}')])
    before = await audit.pages()

    segments = await audit.services.sealer.seal_due(everything=True)

    assert [segment.rows for segment in segments] == [3, 3, 1]
    assert await audit.pages() == before


@pytest.mark.parametrize(("days_ago", "is_due"), [(1, True), (0, False), (-1, False)])
def test_rows_of_a_later_time_are_sealed_once_their_day_is_over(settings, days_ago, is_due):
    """The clock was set back since they came: how long they wait is unknown."""
    later = START + timedelta(seconds=1)
    size = JournalSize(rows=1, batches=1, bytes=1)

    day = PendingDay("org_a", TODAY - timedelta(days=days_ago), size, later)

    assert day.is_due(settings, START) is is_due


def pending(size: int) -> PendingDay:
    return PendingDay("org_a", TODAY, JournalSize(rows=1, batches=1, bytes=size), START)


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([], []),
        ([1] * (TOGETHER_MAX + 1), [TOGETHER_MAX, 1]),
        ([BYTES_MAX, 1, BYTES_MAX - 1, 1], [1, 2, 1]),
        ([1, 2 * BYTES_MAX, 1], [1, 1, 1]),
    ],
    ids=["none", "many", "large", "larger than a run"],
)
def test_days_are_sealed_a_bounded_number_at_a_time(sizes, runs):
    """Their rows are in memory together, and other writers wait for the commit."""
    days = [pending(size) for size in sizes]

    cut = list(together(days))

    assert [len(run) for run in cut] == runs
    assert list(itertools.chain(*cut)) == days


async def test_small_days_are_sealed_with_one_commit(audit, monkeypatch):
    """A commit waits for the disk: a backlog must not take as many as it has days."""
    await audit.seal()
    for days_ago in range(3):
        await audit.accept(rows(2, days_ago))
    before = await found(audit)
    write, commits = HeldLease.write, []

    def counted(lease: HeldLease) -> AbstractAsyncContextManager[UnitOfWork]:
        commits.append(lease)
        return write(lease)

    monkeypatch.setattr(HeldLease, "write", counted)

    segments = await audit.services.sealer.seal_due(everything=True)

    assert (len(segments), len(commits)) == (3, 1)
    assert await found(audit) == before
