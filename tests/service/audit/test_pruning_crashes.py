"""A crash at any step of pruning drops a day whole or not at all, and says so exactly once."""

from datetime import timedelta
from itertools import count

import msgspec
import pytest
from sqlalchemy import select

from service.store.tables import SegmentEntry
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START, settings_over
from tests.power import PowerCut, at, kill_process, power_cut, power_cut_after
from tests.service.audit.pruning import add_past, always_on, left, prune, pruned_rows

GRACE_S = 100.0


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path), export_max_s=GRACE_S - 30, query_max_s=30.0
    )


@pytest.fixture
async def past(audit):
    """12 old rows, sealed and not, and a new one."""
    await always_on(audit, "free")
    await add_past(audit)
    await audit.accept([sample_row(START)])
    return audit


async def assert_all_or_nothing(past, stored: list[str]) -> bool:
    """True when the old days are gone, and the log says so; False when all is as it was."""
    now, said = await left(past), [row["payload"]["rows"] for row in await pruned_rows(past)]
    assert (now, said) in [(stored, []), (stored[:1], [12])]
    return bool(said)


async def test_a_crash_at_any_step_loses_and_doubles_nothing(past):
    stored = await left(past)
    assert len(stored) == 13
    for steps in count():
        try:
            with power_cut_after(steps, past.services.store):
                await prune(past)
        except PowerCut:
            if await assert_all_or_nothing(past, stored):
                break  # only giving back the lease was left to do
        else:
            break

    assert steps > 11
    assert await prune(past) == []
    assert await assert_all_or_nothing(past, stored)


async def lines(past) -> int:
    """How many files of old days the catalog names."""
    async with past.services.store.read() as session:
        found = await session.scalars(
            select(SegmentEntry).where(SegmentEntry.retired_at.is_not(None))
        )
        return len(found.all())


@pytest.mark.parametrize("number", [1, 2])
async def test_a_crash_at_an_unlink_leaves_it_to_the_next_sweep(past, number):
    """Readers are gone by then; a line whose file is gone is taken out like any other."""
    stored = await left(past)
    await prune(past)
    past.clock.advance(seconds=GRACE_S + 1)

    with power_cut(past.services.store, at("unlink", number)), pytest.raises(PowerCut):
        await past.services.garbage_collector.unlink_retired()

    assert await assert_all_or_nothing(past, stored)
    assert await lines(past) == 2
    assert await past.services.garbage_collector.unlink_retired() == 2
    assert await lines(past) == 0
    assert not list(past.services.settings.audit_dir.glob("*/day=2026-02-*/*"))
    assert await assert_all_or_nothing(past, stored)


async def kill_at(past, work: str, beginning: str, after: str = "") -> None:
    """A real process, killed for real at that step."""
    await kill_process(past.services.settings, past.clock.now, work, beginning, after=after)


@sample(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["UPDATE segments", "DELETE FROM journal", "UPDATE counters", "INSERT INTO journal", "COMMIT"],
)
async def test_kill_9_before_the_commit_changes_nothing(past, step):
    stored = await left(past)

    # Commits before that one take the lease and record the clock.
    await kill_at(past, "prune", step, after="INSERT INTO journal" if step == "COMMIT" else "")

    assert not await assert_all_or_nothing(past, stored)
    await prune(past)
    assert await assert_all_or_nothing(past, stored)


@pytest.mark.slow
async def test_kill_9_at_an_unlink_leaves_it_to_the_next_sweep(past):
    stored = await left(past)
    await prune(past)
    past.clock.now += timedelta(seconds=GRACE_S + 1)

    await kill_at(past, "unlink", "unlink")

    assert await assert_all_or_nothing(past, stored)
    assert await past.services.garbage_collector.unlink_retired() == 2
    assert await lines(past) == 0
