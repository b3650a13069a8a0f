"""A publication makes a table equal to the live segments, in one snapshot, exactly once."""

import asyncio
import sys

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import make_url

from service.app.composition import build_services
from service.audit.open_table.places import LAKE_EXTRA_MISSING
from service.store.catalog import (
    delete_segments,
    list_live_segments,
    list_unportable,
    retire_segments,
)
from service.store.lease import LeaseLost, LeaseTaken
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START
from tests.databases import IS_POSTGRESQL
from tests.service.audit.meanwhile import by_another_worker, by_hand
from tests.service.audit.open_table.conftest import DAY, answers_of
from tests.service.audit.pruning import always_on, prune
from tests.service.audit.test_import import line, take


async def test_a_first_publication_has_every_sealed_row(filled):
    """Each with the tenant that only its partition says."""
    published = await filled.publish()

    assert (published.files, published.added, published.removed) == (4, 4, 0)
    await filled.assert_published()
    by_tenant = answers_of(await filled.read()).by_tenant
    assert set(by_tenant) == {filled.audit.world.acme.id, filled.audit.world.other.id}


async def test_a_second_publication_changes_nothing(filled):
    first = await filled.publish()

    second = await filled.publish()

    assert (second.is_new_snapshot, second.snapshot) == (False, first.snapshot)
    assert len(await filled.named_files()) == (1 if filled.format == "iceberg" else 2)


@sample(1)
async def test_a_publication_after_each_change_says_what_countersign_says(filled):
    await filled.publish()

    await filled.audit.accept([sample_row(START, package_name="later")])
    await filled.audit.seal()
    assert (await filled.publish()).added == 1
    await filled.assert_published()

    filled.audit.clock.now += 2 * DAY
    assert len(await filled.services.compactor.compact_due(everything=True)) == 1
    merged = await filled.publish()
    assert (merged.added, merged.removed) == (1, 2)
    await filled.assert_published()

    lines = [line(START - n * DAY, f"i{n}") for n in range(3)]
    await take(filled.audit, b"".join(lines))
    assert (await filled.publish()).added == 3
    await filled.assert_published()

    await always_on(filled.audit, "free")
    await prune(filled.audit)
    assert (await filled.publish()).removed > 0
    await filled.assert_published()
    assert min((await filled.read())["created_at"].to_pylist()) > START - 10 * DAY


async def test_imported_files_are_rewritten_before_they_are_published(filled):
    """They count from 0, and other engines do not know the base in the catalog."""
    await take(filled.audit, line(START - DAY) + line(START - DAY))
    async with filled.services.store.read() as session:
        assert len(await list_unportable(session)) == 1

    await filled.publish()

    seqs = (await filled.read())["seq"].to_pylist()
    assert sorted(seqs) == list(range(min(seqs), max(seqs) + 1))
    await filled.assert_published()


async def test_complete_through_is_the_row_before_the_first_one_that_is_missing(filled):
    """Rows after it may be in the table; no row up to it is missing."""
    services = filled.services
    assert (await filled.publish()).complete_through_seq == await services.store.last_seq()

    await filled.audit.accept([sample_row(START)], filled.audit.world.other)
    first_missing = await services.store.last_seq()
    await filled.audit.accept([sample_row(START)])
    await services.sealer.seal_due(everything=True)
    await filled.audit.accept([sample_row(START)])
    unsealed = await services.store.last_seq()
    assert (await filled.publish()).complete_through_seq == unsealed - 1 > first_missing

    await filled.assert_published()


async def test_a_tenants_own_table_is_complete_whatever_others_have_in_the_journal(filled):
    """A quiet organisation's table is not held back by a busy one."""
    await filled.audit.accept([sample_row(START)], filled.audit.world.other)
    last = await filled.services.store.last_seq()

    tables = await filled.services.publisher.publish([filled.format], is_per_tenant=True)

    complete = {table.key.tenant_id: table.complete_through_seq for table in tables}
    assert complete[filled.audit.world.acme.id] == last
    assert complete[filled.audit.world.other.id] == last - 1


async def test_per_tenant_tables_have_the_rows_of_their_tenant_alone(filled):
    """Each can be given to its organisation."""
    tables = await filled.services.publisher.publish([filled.format], is_per_tenant=True)

    acme, other = filled.audit.world.acme.id, filled.audit.world.other.id
    by_tenant = (await filled.sealed()).by_tenant
    assert {table.key.tenant_id for table in tables} == {acme, other}
    assert answers_of(await filled.read(acme)).by_tenant == {acme: by_tenant[acme]}
    assert answers_of(await filled.read(other)).by_tenant == {other: by_tenant[other]}


async def test_a_file_that_is_gone_is_not_published(filled):
    root = filled.services.settings.audit_dir
    lost = min(root.rglob("*.parquet"))
    lost.unlink()

    published = await filled.publish()

    assert published.files == 3
    assert published.complete_through_seq < await filled.services.store.last_seq()
    await filled.assert_no_file_is_missing()


async def publish_elsewhere(worker) -> None:
    """As on another machine, which does not see the lock file of this one, when the lease ended."""
    worker.clock.advance(seconds=worker.settings.lease_s + 1)
    lock_file = worker.lease._lock_file
    worker.lease._lock_file = lock_file.with_name("of-another-machine.lock")
    await worker.publisher.publish(["iceberg", "delta"])


@sample(2)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_publisher_whose_lease_is_taken_over_doubles_nothing(filled, moment, monkeypatch):
    """It was suspended before or after it wrote its snapshot, and another one published."""
    await filled.services.publisher.publish(["iceberg", "delta"])
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    takes_over = [by_another_worker(filled.audit, publish_elsewhere)]
    kind = type(filled.services.publisher.places.table(filled.key()))
    write = kind.write

    def overtaken(self, head, change):
        if takes_over and moment == "before":
            takes_over.pop()()
        after = write(self, head, change)
        if takes_over:
            takes_over.pop()()
        return after

    monkeypatch.setattr(kind, "write", overtaken)
    with pytest.raises(LeaseLost):
        await filled.publish()
    monkeypatch.undo()

    assert takes_over == []
    await filled.assert_published()
    assert not (await filled.publish()).is_new_snapshot
    await filled.assert_published()


async def remove_all(worker) -> None:
    """As a sweep of another holder of the lease, after a merge."""
    async with worker.store.write() as work:
        live = await list_live_segments(work.session)
        await retire_segments(work.session, live, work.now)
        await delete_segments(work.session, live)


async def test_a_publisher_whose_segments_were_removed_publishes_nothing(filled, monkeypatch):
    """It was suspended after it had read which segments there are, and lost the lease."""
    await filled.publish()
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    before = await filled.identity(), await filled.named_files()
    kind = type(filled.services.publisher.places.table(filled.key()))

    def overtaken(self, head):
        by_another_worker(filled.audit, remove_all)()
        return True

    monkeypatch.setattr(kind, "is_current", overtaken)
    with pytest.raises(LeaseLost):
        await filled.publish()

    assert (await filled.identity(), await filled.named_files()) == before


async def test_a_table_that_another_process_began_again_is_not_taken_for_the_former(filled):
    """It was dropped and published, so it has the same version numbers and other files."""
    await filled.publish()
    key = filled.key()
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()

    async def begin_again(worker) -> None:
        await worker.publisher.drop([key])
        await worker.publisher.publish([filled.format])

    filled.audit.clock.advance(seconds=1)
    await asyncio.to_thread(by_another_worker(filled.audit, begin_again))
    filled.audit.clock.advance(hours=48)
    assert await filled.services.compactor.compact_due(everything=True)
    await filled.publish()

    await filled.assert_published()


async def test_a_foreign_commit_is_not_overwritten(filled, monkeypatch):
    """Maintenance by another engine may move the table while a publication is made."""
    if filled.format != "iceberg":
        pytest.skip("Delta's log refuses it: see the test of formats")
    await filled.publish()
    await filled.audit.accept([sample_row(START)])
    await filled.audit.seal()
    statement = "UPDATE iceberg_tables SET metadata_location = metadata_location || '.moved'"
    kind = type(filled.services.publisher.places.table(filled.key()))
    write = kind.write

    def moved(self, head, change):
        by_hand(filled.audit, statement)()
        return write(self, head, change)

    monkeypatch.setattr(kind, "write", moved)
    with pytest.raises(LeaseLost):
        await filled.publish()
    monkeypatch.undo()

    by_hand(
        filled.audit,
        statement.replace("|| '.moved'", "").replace(
            "= metadata_location", "= replace(metadata_location, '.moved', '')"
        ),
    )()
    assert (await filled.publish()).added == 1
    await filled.assert_published()


async def test_two_publishers_at_once_publish_once(filled):
    second = build_services(filled.services.settings, filled.audit.clock)
    try:
        outcomes = await asyncio.gather(
            filled.publish(), second.publisher.publish([filled.format]), return_exceptions=True
        )
    finally:
        await second.close()

    refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert all(isinstance(error, LeaseTaken | LeaseLost) for error in refused), refused
    await filled.assert_published()


async def test_a_moved_data_dir_has_its_table_started_over(filled):
    """Iceberg's files name absolute paths."""
    await filled.publish()
    await filled.services.lake.run_in_thread(
        lambda: filled.services.publisher.places.table(filled.key()).remove()
    )
    filled.services.publisher._heads.clear()

    again = await filled.publish()

    assert again.added == 4
    await filled.assert_published()


async def test_pyicebergs_own_catalog_finds_the_table(filled):
    """The catalog is in the same database, in the form that SQL catalogs have."""
    if filled.format != "iceberg":
        pytest.skip("Delta has no catalog")
    await filled.publish()
    driver = "postgresql+psycopg" if IS_POSTGRESQL else "sqlite"
    uri = make_url(filled.services.settings.database).set(drivername=driver)

    catalog = SqlCatalog("countersign", uri=uri.render_as_string(hide_password=False))
    table = catalog.load_table("countersign.audit")

    assert catalog.list_tables("countersign") == [("countersign", "audit")]
    assert answers_of(table.scan().to_arrow()) == await filled.sealed()
    catalog.engine.dispose()


async def test_the_table_tells_how_it_is_read(filled):
    """Spark's vectorized reader knows no DELTA encodings; partitions are tenant and day."""
    if filled.format != "iceberg":
        pytest.skip("of Iceberg alone")
    from pyiceberg.table import StaticTable

    await filled.publish()
    table = StaticTable.from_metadata(await filled.version())

    assert table.properties["read.parquet.vectorization.enabled"] == "false"
    assert [field.name for field in table.spec().fields] == ["tenant", "created_at_day"]
    days = table.inspect.partitions()["partition"].to_pylist()
    assert {day["tenant"] for day in days} == set((await filled.sealed()).by_tenant)
    one_day = f"created_at >= '{START.date()}T00:00:00+00:00'"
    assert len(list(table.scan(row_filter=one_day).plan_files())) == 2


@pytest.mark.parametrize("module", ["pyiceberg", "deltalake"])
async def test_without_the_extra_the_error_says_what_to_install(filled, module, monkeypatch):
    name = {"pyiceberg": "iceberg", "deltalake": "delta"}[module]
    monkeypatch.setitem(sys.modules, f"analytics.open_table.{name}", None)

    with pytest.raises(
        LAKE_EXTRA_MISSING, match=rf"{module}, for .* is not installed: .* requirements/lake\.txt"
    ):
        await filled.services.publisher.publish([name])
