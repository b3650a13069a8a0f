"""Indexes that are missing or damaged are built in the background, and searches go on meanwhile."""

from datetime import timedelta

from sqlalchemy import update

from analytics.storage.segment_index import INDEX_VERSION
from analytics.storage.segment_metadata import Segment
from service.app.background_jobs import verify_suspects
from service.store.catalog import list_live_segments
from service.store.tables import SegmentEntry
from tests.analytics.index_version_2 import write_version_2
from tests.analytics.samples import sample_row
from tests.conftest import START, refused


async def segments(audit) -> list[Segment]:
    async with audit.services.store.read() as session:
        return await list_live_segments(session, audit.world.acme.id)


async def fill(audit) -> None:
    await audit.accept([sample_row(START - timedelta(days=n)) for n in range(3)])
    await audit.seal()


async def test_the_first_search_for_a_value_that_is_nowhere_opens_no_segment(audit):
    await fill(audit)
    for path in audit.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"):
        path.unlink()

    assert (await audit.page(package="nowhere", order="asc"))["entries"] == []
    assert (await refused(await audit.get(package="left-pad", order="asc")))[0] == 503


async def test_the_catalog_names_each_index_with_size_and_digest(audit):
    await fill(audit)
    root = audit.services.settings.audit_dir

    found = await segments(audit)
    assert len(found) == 3
    assert all(s.index_path(root).stat().st_size == s.index_size for s in found)
    assert all(len(s.index_sha256) == 64 for s in found)


async def test_damaged_indexes_are_rebuilt_once_a_query_has_met_them(audit):
    await fill(audit)
    root = audit.services.settings.audit_dir
    first, second, third = await segments(audit)
    first.index_path(root).unlink()
    second.index_path(root).write_bytes(b"CSIX no index at all")

    assert len((await audit.page(package="left-pad", order="asc"))["entries"]) == 3
    assert await audit.services.indexer.build_missing() == 2
    assert await segments(audit) == [first, second, third]
    assert await audit.services.indexer.build_missing() == 0


async def test_an_index_that_another_process_could_not_read_is_rebuilt(audit, worker):
    """Queries meet damage in every process; one of them maintains, and may not read that index."""
    await fill(audit)
    before = await segments(audit)
    before[0].index_path(audit.services.settings.audit_dir).write_bytes(b"CSIX no index at all")
    assert len((await audit.page(package="left-pad", order="asc"))["entries"]) == 3

    assert await worker.indexer.build_missing() == 0
    await verify_suspects(audit.services)
    assert await worker.indexer.build_missing() == 1
    assert await segments(audit) == before


async def test_segments_that_the_catalog_has_no_index_of_get_one(audit):
    """A version that wrote none left them; one that cannot be read is tried once."""
    await fill(audit)
    root = audit.services.settings.audit_dir
    before = await segments(audit)
    async with audit.services.store.write() as work:
        for segment in before:
            await set_index_unknown(work, segment)
    before[0].path(root).unlink()

    assert await audit.services.indexer.build_missing() == 2
    assert await audit.services.indexer.build_missing() == 0
    assert (await segments(audit))[1:] == before[1:]


async def test_indexes_of_an_earlier_version_are_read_and_built_again(audit):
    await fill(audit)
    root = audit.services.settings.audit_dir
    before = await segments(audit)
    for segment in before:
        write_version_2(root, segment)
    async with audit.services.store.write() as work:
        await work.session.execute(update(SegmentEntry).values(index_version=None))
    everything = len(await all_segments(audit))
    before[0].path(root).unlink()
    assert (await audit.page(package="nowhere", order="asc"))["entries"] == []

    assert await audit.services.indexer.build_missing() == everything - 1
    assert await audit.services.indexer.build_missing() == 0
    assert await segments(audit) == before
    versions = [int.from_bytes(s.index_path(root).read_bytes()[4:6], "little") for s in before]
    assert versions == [2, INDEX_VERSION, INDEX_VERSION]


async def set_index_unknown(work, segment: Segment) -> None:
    await work.session.execute(
        update(SegmentEntry)
        .where(SegmentEntry.id == segment.segment_id)
        .values(index_size=None, index_sha256=None)
    )


async def test_rebuilding_all_writes_every_index_again(audit):
    await fill(audit)
    root = audit.services.settings.audit_dir
    before = await segments(audit)
    for segment in before:
        segment.index_path(root).write_bytes(b"")
    before[0].path(root).unlink()
    shown: list[tuple[int, int]] = []

    built = await audit.services.indexer.rebuild_all(
        None, lambda done, total: shown.append((done, total))
    )

    everything = sum(segment.rows for segment in await all_segments(audit))
    assert built == (len(await all_segments(audit)) - 1, [before[0].segment_id])
    assert shown[-1] == (everything, everything)
    assert all(s.index_path(root).stat().st_size == s.index_size for s in before[1:])


async def all_segments(audit) -> list[Segment]:
    async with audit.services.store.read() as session:
        return await list_live_segments(session)
