"""A crash at any step of a seal leaves every row visible exactly once."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from service.store.catalog import list_segment_ids
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START, settings_over
from tests.power import Last, PowerCut, at, kill_process, power_cut

GRACE_S = 3600.0
SYNCS = 12
"""Of three days the file, the index and the folder; of two tenants the folder; and that of all."""

STATEMENTS = ["UPDATE leases", "DELETE FROM journal", "INSERT INTO segments"]


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(settings_over(tmp_path), orphan_grace_s=GRACE_S)


@pytest.fixture
async def filled(audit):
    """Two batches of acme's on one day, and one on the day before: sealed together."""
    for days_ago in (0, 0, 1):
        at = START - timedelta(days=days_ago)
        await audit.accept([sample_row(at, package_name=f"p{n}") for n in range(4)])
    return audit


async def crash(audit, is_last: Last) -> None:
    """Seal everything, into the power cut."""
    with power_cut(audit.services.store, is_last), pytest.raises(PowerCut):
        await audit.services.sealer.seal_due(everything=True)


async def assert_all_is_well(audit, before: list[dict]) -> None:
    """Every row once; after a restart too, and once sealed, and orphans go after the grace."""
    assert await audit.pages(limit=5) == before
    await audit.seal()
    assert await audit.pages(limit=5) == before
    root = audit.services.settings.audit_dir
    files = set(root.glob("tenant=*/day=*/*"))
    named = {path for path in files if path.stem in await segment_ids(audit)}

    # Files have the times of this machine, not those of the test's clock.
    clock, now = audit.clock, audit.clock.now
    clock.now = datetime.now(UTC) + timedelta(seconds=GRACE_S - 60)
    assert await audit.services.garbage_collector.clear_orphans() == 0
    clock.now += timedelta(seconds=120)
    assert await audit.services.garbage_collector.clear_orphans() == len(files - named)
    clock.now = now

    assert set(root.glob("tenant=*/day=*/*")) == named
    assert await audit.pages(limit=5) == before


async def segment_ids(audit) -> set[str]:
    async with audit.services.store.read() as session:
        return await list_segment_ids(session)


@sample(3)
@pytest.mark.parametrize("number", range(1, SYNCS + 1))
async def test_a_crash_at_any_sync_loses_and_doubles_nothing(filled, number):
    before = await filled.pages(limit=5)

    await crash(filled, at("fsync", number))

    await assert_all_is_well(filled, before)


async def test_there_are_no_other_syncs(filled):
    """Otherwise the test above would have missed some."""
    with power_cut(filled.services.store, at("fsync", SYNCS + 1)):
        assert await filled.seal() == 3


@pytest.mark.parametrize(
    ("name", "number"), [("mkdir", 1), ("mkdir", 2), ("rename", 1), ("rename", 2)]
)
async def test_a_crash_at_any_name_loses_and_doubles_nothing(filled, name, number):
    before = await filled.pages(limit=5)

    await crash(filled, at(name, number))

    await assert_all_is_well(filled, before)


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_crash_between_write_and_commit_loses_and_doubles_nothing(filled, statement):
    before = await filled.pages(limit=5)

    # The lease is taken with an UPDATE, too; the one meant follows the written file.
    await crash(filled, at(statement, after="UPDATE leases SET expires_at"))

    assert list(filled.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet"))
    await assert_all_is_well(filled, before)


async def test_a_sweep_that_is_paused_leaves_what_was_young(filled, monkeypatch):
    """The lease ended, and another process may have committed the file meanwhile."""
    await crash(filled, at("INSERT INTO segments"))
    lake, root = filled.services.lake, filled.services.settings.audit_dir
    files = set(root.glob("tenant=*/day=*/*"))
    claimed_segments, clock = lake.claimed_segments, filled.clock

    async def claimed_after_hours(grace_s: float) -> set[str]:
        clock.advance(seconds=10 * GRACE_S)
        return await claimed_segments(grace_s)

    clock.now = datetime.now(UTC)
    monkeypatch.setattr(lake, "claimed_segments", claimed_after_hours)
    assert await filled.services.garbage_collector.clear_orphans() == 0
    assert set(root.glob("tenant=*/day=*/*")) == files != set()


async def test_a_crash_at_the_commit_loses_and_doubles_nothing(filled):
    before = await filled.pages(limit=5)

    await crash(filled, at("COMMIT", after="INSERT INTO segments"))

    await assert_all_is_well(filled, before)


@sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, SYNCS // 2, SYNCS - 1, SYNCS])
async def test_kill_9_in_the_middle_of_a_seal_loses_and_doubles_nothing(filled, number):
    before = await filled.pages(limit=5)

    await kill_process(filled.services.settings, START, "seal", "fsync", number)

    await assert_all_is_well(filled, before)
