"""Crashes around a bucket: wherever a seal or an import ends, every row is there exactly once."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from analytics.model.errors import StoreFault
from analytics.storage.objects import ObjectEntry, Objects
from analytics.storage.segment_metadata import WrongDay
from analytics.storage.segment_store import StoredFile
from analytics.storage.segment_writer import NewSegment
from service.audit.importer import FileImportOvertaken, UnnamedFiles
from service.store.catalog import list_segment_ids
from tests.analytics.samples import sample_row, table_of
from tests.budgets import only_full
from tests.conftest import START, settings_over
from tests.crashes import PowerCut, at, kill_process, power_cut
from tests.service.audit.operations import CONTENT, ROWS
from tests.service.audit.test_import import take
from tests.service.audit.test_s3 import new_node

GRACE_S = 3600.0


@pytest.fixture
def settings(tmp_path, bucket):
    return bucket.settings(settings_over(tmp_path), orphan_grace_s=GRACE_S)


@pytest.fixture
async def filled(audit):
    """Three batches of acme's on one day."""
    for _ in range(3):
        await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(4)])
    return audit


@pytest.fixture
def store_clock(monkeypatch):
    """Lets the clock of the object store go on by so many seconds."""
    ahead_s = [0.0]
    now_s = Objects.now_s
    monkeypatch.setattr(Objects, "now_s", lambda objects: now_s(objects) + ahead_s[0])
    return ahead_s


async def named(audit) -> set[str]:
    async with audit.services.store.read() as session:
        return await list_segment_ids(session)


async def assert_all_is_well(audit, bucket, store_clock, before: list[dict]) -> None:
    """Every row once; also when it is sealed again; and objects without a name go after the grace.

    Whatever the clock of this machine says: it is ten years ahead.
    """
    assert await audit.pages(limit=5) == before
    await audit.seal()
    assert await audit.pages(limit=5) == before
    ids = await named(audit)
    orphans = {key for key in bucket.list_keys() if key.split("/")[-1].split(".")[0] not in ids}
    collector = audit.services.garbage_collector

    audit.clock.advance(days=3650)
    store_clock[0] = GRACE_S - 60
    assert await collector.clear_orphans() == 0
    store_clock[0] = GRACE_S + 60
    assert await collector.clear_orphans() == len(orphans)
    audit.clock.advance(days=-3650)

    assert {key.split("/")[-1].split(".")[0] for key in bucket.list_keys()} == ids
    assert await audit.pages(limit=5) == before


@pytest.mark.parametrize(
    ("step", "after"),
    [
        pytest.param("put object", "", marks=only_full),
        ("rename", "put object"),
        ("INSERT INTO segments", "put object"),
        pytest.param("COMMIT", "INSERT INTO segments", marks=only_full),
    ],
    ids=["before the object", "after the objects", "before the commit", "at the commit"],
)
async def test_a_crash_of_a_seal_loses_and_doubles_nothing(
    filled, bucket, store_clock, step, after
):
    before = await filled.pages(limit=5)

    with (
        power_cut(filled.services.store, at(step, after=after)),
        pytest.raises(PowerCut),
    ):
        await filled.services.sealer.seal_due(everything=True)

    await assert_all_is_well(filled, bucket, store_clock, before)


@pytest.mark.slow
@only_full
@pytest.mark.parametrize(
    ("step", "after"),
    [("put object", ""), ("rename", "put object"), ("COMMIT", "INSERT INTO segments")],
    ids=["before the object", "after the objects", "before the commit"],
)
async def test_kill_9_in_the_middle_of_a_seal_loses_and_doubles_nothing(
    filled, bucket, store_clock, step, after
):
    before = await filled.pages(limit=5)

    await kill_process(filled.services.settings, START, "seal", step, after=after)

    await assert_all_is_well(filled, bucket, store_clock, before)


async def test_of_two_sealers_with_one_name_only_one_can_have_it(filled, bucket):
    """The other changes nothing, and commits nothing: its rows stay in the journal."""
    tenant_id, lake = filled.world.acme.id, filled.services.lake
    rows = [table_of([sample_row(START, package_name=name)]) for name in ("first", "second")]
    await lake.store_rows(tenant_id, START.date(), "seg_same", rows[0])
    contents = {key: bucket.content(key) for key in bucket.list_keys()}

    with pytest.raises(StoreFault, match="another object has this name"):
        await lake.store_rows(tenant_id, START.date(), "seg_same", rows[1])

    assert {key: bucket.content(key) for key in bucket.list_keys()} == contents


async def test_an_object_that_was_sent_twice_is_one(filled, bucket):
    """A request whose answer was lost is sent again, and finds its own object."""
    rows = table_of([sample_row(START)], 1)
    tenant_id, lake = filled.world.acme.id, filled.services.lake

    stored = [await lake.store_rows(tenant_id, START.date(), "seg_same", rows) for _ in range(2)]

    assert stored[0] == stored[1]
    assert len(bucket.list_keys()) == 2


@pytest.fixture
def import_clock(monkeypatch):
    """The clock by which an import knows how long it was suspended."""
    awake = [1_000.0]
    monkeypatch.setattr("analytics.storage.import_claims.awake_s", lambda: awake[0])
    return awake


@pytest.fixture
async def files(audit, import_clock):
    """What an import has written so far: one segment."""
    await audit.services.lake.confirm_prefix()
    services, tenant_id = audit.services, audit.world.acme.id
    unnamed = UnnamedFiles(services.lake, audit.clock, GRACE_S, tenant_id)
    unnamed.buffer.add([sample_row(START)])
    unnamed.buffer.finish()
    return unnamed


@pytest.fixture
def old_objects(monkeypatch):
    """All segments in the bucket were written longer ago than the grace; claims were not."""
    entries = Objects.entries

    def aged(objects: Objects, folder: str = "", after: str | None = None) -> Iterator[ObjectEntry]:
        for entry in entries(objects, folder, after):
            is_segment = entry.key.startswith("tenant=")
            age_s = GRACE_S + 60 if is_segment else 0.0
            yield replace(entry, written_s=entry.written_s - age_s)

    monkeypatch.setattr(Objects, "entries", aged)


@pytest.mark.usefixtures("old_objects")
async def test_a_long_import_keeps_its_objects(audit, bucket, files, import_clock):
    import_clock[0] += GRACE_S / 3
    await files.confirm()

    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert len(bucket.list_keys()) == 2

    await files.release()
    assert await audit.services.garbage_collector.clear_orphans() == 2
    assert bucket.list_keys() == set()


async def test_a_sweep_that_is_paused_leaves_what_was_young(
    audit, bucket, files, store_clock, monkeypatch
):
    """The lease ended, and the import, which had no claim yet, may have committed meanwhile."""
    keys, lake = bucket.list_keys(), audit.services.lake
    list_files = lake.list_files

    async def listed_and_paused(tenant_id: str | None = None) -> list[StoredFile]:
        listed = await list_files(tenant_id)
        store_clock[0] = GRACE_S + 60
        return listed

    monkeypatch.setattr(lake, "list_files", listed_and_paused)
    assert await audit.services.garbage_collector.clear_orphans() == 0
    assert bucket.list_keys() == keys != set()


async def test_an_import_that_was_killed_leaves_objects_that_are_swept(
    audit, bucket, files, store_clock
):
    await files.confirm()

    store_clock[0] = GRACE_S + 60
    assert await audit.services.garbage_collector.clear_orphans() == 2

    assert list(bucket.objects().entries("_countersign/claims")) == []


async def test_of_days_that_are_put_together_none_is_left_if_one_fails(audit, bucket):
    """The import does not know of them, so that its end would leave them to the sweep."""
    before = bucket.list_keys()
    days = [START.date(), START.date(), START.date() - timedelta(days=1)]
    rows = table_of([sample_row(START)])
    new = [
        NewSegment(audit.world.acme.id, day, f"seg_{number}", rows)
        for number, day in enumerate(days)
    ]

    with pytest.raises(WrongDay):
        audit.services.lake.segments.claim(GRACE_S).put_rows(new)

    assert bucket.list_keys() == before


async def test_an_import_suspended_for_too_long_gives_up(audit, bucket, files, import_clock):
    """A sweep may have taken its objects for orphans already, even one that has not ended."""
    import_clock[0] += GRACE_S / 2 + 1

    with pytest.raises(FileImportOvertaken):
        await files.confirm()

    await files.discard()
    assert bucket.list_keys() == set()


@pytest.mark.slow
@only_full
async def test_kill_9_of_an_import_leaves_no_row(audit, bucket, store_clock):
    before = await audit.pages(limit=5)

    await kill_process(
        audit.services.settings,
        START,
        "import",
        "COMMIT",
        after="INSERT INTO segments",
        content=CONTENT,
    )

    await assert_all_is_well(audit, bucket, store_clock, before)


async def test_an_import_is_read_by_other_nodes_and_leaves_no_claim(audit, bucket, tmp_path):
    result = await take(audit, CONTENT)

    assert result.rows == ROWS
    assert list(bucket.objects().entries("_countersign/claims")) == []
    async with new_node(audit, tmp_path / "node") as node:
        names = [row["packageName"] for row in await node.pages(event="install_allowed")]
    assert sorted(names) == sorted(f"p{number}" for number in range(ROWS))
