"""Compaction: one file instead of many, and readers do not notice."""

from datetime import UTC, date, datetime, timedelta

import msgspec
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from analytics.model.errors import StoreFault
from analytics.model.filters import Query
from analytics.model.instants import utc_day
from analytics.storage.segment_metadata import Segment
from service.app.composition import Services
from service.audit.compactor import LARGE_TIMES, LATE_QUIET, MERGED_MAX, WAITING_MAX
from service.store.lease import LeaseLost
from service.store.tables import SegmentEntry
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.service.audit.meanwhile import TAKE_OVER, at_the_rename, by_another_worker, by_hand
from tests.service.audit.test_import import take

QUIET_S = 600.0
GRACE_S = 100.0
YESTERDAY = START - timedelta(days=1)


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path),
        compact_quiet_s=QUIET_S,
        export_max_s=GRACE_S - 30,
        query_max_s=30.0,
    )


async def add_segments(audit, count: int, at: datetime = YESTERDAY, rows: int = 3) -> None:
    """`count` segments of `rows` rows each, all on one day."""
    for n in range(count):
        instants = [at + timedelta(seconds=(7 * n + k) % 10) for k in range(rows)]
        await audit.accept(
            [sample_row(instant, version=f"{n}.{k}") for k, instant in enumerate(instants)]
        )
        await audit.seal()


@pytest.fixture
async def filled(audit):
    """Three segments of yesterday."""
    await add_segments(audit, 3)
    return audit


async def lines(audit, day: date | None = None) -> list[SegmentEntry]:
    """The catalog's lines of acme's `day` (yesterday), retired ones included."""
    async with audit.services.store.read() as session:
        found = await session.scalars(
            select(SegmentEntry).where(
                SegmentEntry.tenant_id == audit.world.acme.id,
                SegmentEntry.day == (day or utc_day(YESTERDAY)),
            )
        )
        return list(found)


def files(audit) -> set[str]:
    """The ids of yesterday's files."""
    pattern = f"tenant={audit.world.acme.id}/day={utc_day(YESTERDAY)}/*"
    return {path.stem for path in audit.services.settings.audit_dir.glob(pattern)}


async def compact(audit) -> int:
    return len(await audit.services.compactor.compact_due(everything=True))


async def test_a_days_segments_become_one_and_every_page_stays_as_it_was(filled):
    before = await filled.pages(limit=4), await filled.pages(limit=4, order="asc")

    assert await compact(filled) == 1

    live = [line for line in await lines(filled) if line.retired_at is None]
    assert [line.rows for line in live] == [9]
    assert (await filled.pages(limit=4), await filled.pages(limit=4, order="asc")) == before
    assert await compact(filled) == 0


async def test_a_segment_that_counts_from_0_is_rewritten_even_alone(audit):
    """Other engines read the files without the catalog: `seq` has to be the row's own there."""
    await audit.accept([sample_row(YESTERDAY, package_name="journalled")])
    item = {"event": "install_allowed", "packageName": "x", "created_at": str(YESTERDAY)}
    content = b"\n".join([msgspec.json.encode(item)] * 3)
    await take(audit, content)
    before = await audit.pages(limit=2)
    (imported,) = await lines(audit)

    assert await compact(audit) == 1

    (line,) = [line for line in await lines(audit) if line.retired_at is None]
    assert (imported.seq_base > 0, line.seq_base) == (True, 0)
    (path,) = audit.services.settings.audit_dir.rglob(f"{line.id}.parquet")
    assert set(pq.read_table(path, partitioning=None)["seq"].to_pylist()) == set(
        range(line.min_seq, line.max_seq + 1)
    )
    assert await audit.pages(limit=2) == before
    assert await compact(audit) == 0


async def test_a_lone_segment_waits_until_its_day_is_over_and_quiet(audit):
    """An import is often followed by the next file of the same days."""
    item = {"event": "install_allowed", "packageName": "x", "created_at": str(START)}
    await take(audit, msgspec.json.encode(item))
    assert await compact(audit) == 0

    audit.clock.advance(seconds=LATE_QUIET.total_seconds(), microseconds=-1)
    assert await audit.services.compactor.compact_due() == []
    audit.clock.advance(microseconds=1)

    assert len(await audit.services.compactor.compact_due()) == 1


async def test_today_is_left_alone(audit):
    await add_segments(audit, 3, START)

    assert await compact(audit) == 0

    audit.clock.advance(hours=12)
    assert await compact(audit) == 1


async def test_a_day_is_due_once_it_has_been_quiet(filled):
    """Late rows come in groups; each group costs one merge."""
    assert await filled.services.compactor.compact_due() == []
    filled.clock.advance(seconds=QUIET_S, microseconds=-1)
    assert await filled.services.compactor.compact_due() == []

    filled.clock.advance(microseconds=1)

    assert [segment.rows for segment in await filled.services.compactor.compact_due()] == [9]


async def test_a_late_row_does_not_rewrite_a_large_day_each_time(audit):
    """It waits for a day without another one, or for many of them."""
    await add_segments(audit, 1, rows=LARGE_TIMES + 1)
    await add_segments(audit, 1, rows=1)
    audit.clock.advance(seconds=LATE_QUIET.total_seconds(), microseconds=-1)
    assert await audit.services.compactor.compact_due() == []

    audit.clock.advance(microseconds=1)

    assert [segment.rows for segment in await audit.services.compactor.compact_due()] == [
        LARGE_TIMES + 2
    ]


async def test_late_rows_that_are_a_part_of_their_day_join_it_once_it_is_quiet(audit):
    """The rows that are rewritten are not many times those that came."""
    await add_segments(audit, 1, rows=LARGE_TIMES)
    await add_segments(audit, 1, rows=1)
    audit.clock.advance(seconds=QUIET_S)

    assert [segment.rows for segment in await audit.services.compactor.compact_due()] == [
        LARGE_TIMES + 1
    ]


async def test_a_day_with_many_segments_is_due_at_once(audit):
    await add_segments(audit, WAITING_MAX - 1, rows=1)
    assert await audit.services.compactor.compact_due() == []

    await add_segments(audit, 1, rows=1)

    assert [segment.rows for segment in await audit.services.compactor.compact_due()] == [
        WAITING_MAX
    ]


async def test_more_segments_than_one_merge_takes_are_merged_in_turns(audit, monkeypatch):
    """Each holds its files open; the smallest go first, so that a large one is rewritten once."""
    monkeypatch.setattr("service.audit.compactor.MERGED_MAX", 2)
    await add_segments(audit, 4, rows=2)
    before = await audit.pages()

    merged = await audit.services.compactor.compact_due(everything=True)

    assert [segment.rows for segment in merged] == [4, 4, 8]
    assert await audit.pages() == before
    assert MERGED_MAX > 2


async def test_files_that_do_not_fit_in_memory_together_are_merged_in_turns(audit, monkeypatch):
    monkeypatch.setattr("analytics.storage.compaction.HELD_BYTES_MAX", 0)
    await add_segments(audit, 5, rows=2)
    before = await audit.pages()

    merged = await audit.services.compactor.compact_due(everything=True)

    assert [segment.rows for segment in merged] == [4, 4, 6, 10]
    assert await audit.pages() == before
    assert len([line for line in await lines(audit) if line.retired_at is None]) == 1


async def test_a_round_merges_only_so_much(audit):
    """Sealing waits for it."""
    await add_segments(audit, 2)
    await add_segments(audit, 2, YESTERDAY - timedelta(days=1))

    merged = await audit.services.compactor.compact_due(everything=True, merges_max=1)

    assert [segment.day for segment in merged] == [utc_day(YESTERDAY)]
    assert await compact(audit) == 1


async def test_a_late_row_joins_its_own_day(filled):
    await compact(filled)
    await add_segments(filled, 1, YESTERDAY - timedelta(seconds=1), rows=1)
    before = await filled.pages()

    assert await compact(filled) == 1
    assert await filled.pages() == before
    assert sorted(line.rows for line in await lines(filled) if line.retired_at is None) == [10]


async def test_retired_files_outlive_every_export_that_found_them(filled):
    """The grace is EXPORT_MAX_S and QUERY_MAX_S together, counted from the merge."""
    seen = await filled.services.store.snapshot(filled.world.acme.id)
    queries = filled.services.lake.queries
    count = await queries.run(lambda reader: reader.count(seen, Query()))
    await compact(filled)
    filled.clock.advance(seconds=GRACE_S)

    assert await filled.services.garbage_collector.unlink_retired() == 0
    assert await queries.run(lambda reader: reader.count(seen, Query())) == count

    filled.clock.advance(microseconds=1)
    assert await filled.services.garbage_collector.unlink_retired() == 3
    assert len(files(filled)) == 1
    assert len(await lines(filled)) == 1
    with pytest.raises(StoreFault):
        await queries.run(lambda reader: reader.count(seen, Query()))


async def test_sweeping_orphans_spares_retired_files(filled):
    await compact(filled)
    filled.clock.now = datetime.now(UTC) + timedelta(days=300)

    assert await filled.services.garbage_collector.clear_orphans() == 0
    assert len(files(filled)) == 4


@pytest.mark.parametrize(
    "meanwhile",
    [
        TAKE_OVER,
        "UPDATE segments SET retired_at = 1"
        " WHERE id = (SELECT max(id) FROM segments WHERE day = (SELECT min(day) FROM segments))",
    ],
)
async def test_who_lost_the_lease_or_the_segments_meanwhile_commits_nothing(
    filled, monkeypatch, meanwhile
):
    """Otherwise the rows of a segment that another process has merged would be there twice."""
    at_the_rename(monkeypatch, by_hand(filled, meanwhile))

    with pytest.raises(LeaseLost):
        await compact(filled)

    assert len(await lines(filled)) == 3


async def test_a_seal_during_a_merge_does_not_wait(filled, monkeypatch):
    """Sealing has a lease of its own; what it adds is merged the next time."""
    await filled.accept([sample_row(YESTERDAY)])
    before = await filled.pages()
    sealed: list[Segment] = []

    async def seal(worker: Services) -> None:
        sealed.extend(await worker.sealer.seal_due(everything=True))

    at_the_rename(monkeypatch, by_another_worker(filled, seal))
    await compact(filled)

    assert sum(segment.rows for segment in sealed if segment.day == utc_day(YESTERDAY)) == 1
    assert await filled.pages() == before
    await compact(filled)
    assert await filled.pages() == before


@pytest.mark.parametrize("damage", ["no Parquet", "another day's file"])
async def test_a_damaged_segment_is_not_merged_away(filled, damage):
    """A merge of a part of the rows would lose the others. Other days are merged all the same."""
    await add_segments(filled, 2, YESTERDAY - timedelta(days=1))
    damaged = (await lines(filled))[0]
    path = next(filled.services.settings.audit_dir.glob(f"*/*/{damaged.id}.parquet"))
    if damage == "no Parquet":
        path.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    else:
        day_before = utc_day(YESTERDAY - timedelta(days=1))
        path.write_bytes(next(path.parent.parent.glob(f"day={day_before}/*")).read_bytes())

    # As many merges as it may have do not make the run a success.
    with pytest.raises(StoreFault):
        await filled.services.compactor.compact_due(everything=True, merges_max=1)

    assert [line.retired_at for line in await lines(filled)] == [None] * 3
    other_day = await lines(filled, utc_day(YESTERDAY - timedelta(days=1)))
    assert sum(line.retired_at is None for line in other_day) == 1
