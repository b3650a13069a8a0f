"""Pruning: what is dropped, what is kept, and what is said about it."""

from datetime import timedelta

import msgspec
import pytest

from analytics.model.filters import Query
from analytics.model.retention import PRUNE_DELAY
from service.orgs.organisations import hold, release, set_tier
from service.store.lease import LeaseLost, LeaseTaken
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.service.audit.meanwhile import TAKE_OVER, before_transaction, by_hand
from tests.service.audit.pruning import (
    DAY,
    LONG_AGO,
    STEP,
    add_past,
    always_on,
    change,
    elsewhere,
    last_instant,
    left,
    prune,
    pruned_rows,
)

LIMITED = [("free", 7), ("team", 30), ("org", 365)]
GRACE_S = 100.0
ORGS_TRANSACTION = 3
"""The transactions of a run: take the lease, record the clock, then one for each organisation."""


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path), export_max_s=GRACE_S - 30, query_max_s=30.0
    )


async def move(audit, tier: str) -> None:
    await change(audit.services, lambda work, acme: set_tier(work, acme, tier, BY_OPERATOR))


async def put_on_hold(audit) -> None:
    await change(audit.services, lambda work, acme: hold(work, acme, "case 4711", BY_OPERATOR))


@pytest.fixture
async def past(audit):
    """Acme on tier free with 4 sealed rows, then 2 and 3, then 3 in the journal, and one of now."""
    await always_on(audit, "free")
    await add_past(audit)
    await audit.accept([sample_row(START)])
    return audit


@sample(6)
@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize(("tier", "days"), LIMITED)
@pytest.mark.parametrize(
    ("last_past_the_floor", "is_dropped"), [(-STEP, False), (timedelta(0), False), (STEP, True)]
)
async def test_a_day_goes_48_hours_after_its_last_microsecond_is_past_the_floor(
    audit, tier, days, is_sealed, last_past_the_floor, is_dropped
):
    await always_on(audit, tier)
    last = last_instant(START)
    await audit.accept([sample_row(last), sample_row(last + STEP)])
    if is_sealed:
        await audit.seal()
    audit.clock.now = last + timedelta(days=days) + PRUNE_DELAY + last_past_the_floor

    dropped = await prune(audit)

    assert [(found.slug, found.rows) for found in dropped] == ([("acme", 1)] if is_dropped else [])
    assert len(await left(audit)) == (1 if is_dropped else 2)


async def test_a_day_that_is_past_but_for_one_instant_is_kept_whole(audit):
    await always_on(audit, "free")
    last = last_instant(START)
    await audit.accept([sample_row(last - timedelta(hours=23)), sample_row(last)])
    audit.clock.now = last + timedelta(days=7) + PRUNE_DELAY

    assert await prune(audit) == []
    assert len(await left(audit)) == 2


async def test_enterprise_keeps_everything(audit):
    await always_on(audit, "enterprise")
    await add_past(audit, START - timedelta(days=9000))

    assert await prune(audit) == []
    assert len(await left(audit)) == 12


async def test_days_go_with_their_journal_rows_and_the_log_says_so(past):
    (dropped,) = await prune(past)

    days = ["2026-02-12", "2026-02-13", "2026-02-14"]
    assert ([str(day) for day in dropped.days], dropped.rows) == (days, 12)
    (row,) = await pruned_rows(past)
    said = {"first_day": days[0], "last_day": days[-1], "days": days, "rows": 12}
    assert {name: row["payload"][name] for name in said} == said
    assert (row["actor"], row["verdict_source"]) == ("system:cli", "cli")
    assert len(await left(past)) == 1


async def test_a_second_run_finds_nothing_and_says_nothing(past):
    await prune(past)

    assert await prune(past) == []
    assert len(await pruned_rows(past)) == 1


async def test_what_the_service_drops_by_itself_bears_its_own_name(past):
    await past.services.pruner.prune_in_background()

    (row,) = await pruned_rows(past)
    assert row["actor"] == "system:maintenance"
    assert (row["actor_source"], row["verdict_source"]) == ("system", "system")
    assert row["actor_tenant_id"] == past.services.settings.platform_tenant_id
    assert (row["request_id"], row["source_ip"], row["subject"]) == (None, None, None)


async def test_many_days_still_fit_the_row(audit):
    """The shortened envelope names the first, the last and the count; the payload all days."""
    await always_on(audit, "free")
    await audit.accept([sample_row(START - n * DAY) for n in range(10, 410)])

    await prune(audit)

    (row,) = await pruned_rows(audit)
    reason = msgspec.json.decode(row["decision_reason"])
    assert len(row["payload"]["days"]) == row["payload"]["rows"] == reason["rows"] == 400
    assert (reason["first_day"], reason["last_day"]) == ("2025-01-19", "2026-02-22")
    assert reason["truncated"] is True


async def test_rows_that_were_merged_are_counted_once(past):
    await past.seal()
    await past.services.compactor.compact_due(everything=True)

    (dropped,) = await prune(past)

    assert dropped.rows == 12
    assert (await pruned_rows(past))[0]["payload"]["rows"] == 12


async def test_other_organisations_keep_theirs(past):
    """Same days, another tier; and --org looks at no other."""
    await past.accept([sample_row(LONG_AGO)], past.world.other)
    await past.seal()
    await past.accept([sample_row(LONG_AGO)], past.world.other)

    assert await prune(past, slug="other") == []
    assert len(await left(past)) == 13
    assert [found.slug for found in await prune(past)] == ["acme"]
    entries = (await (await past.get(slug="other", event="blocklist_hit")).get_json())["entries"]
    assert len(entries) == 2


async def test_after_a_lower_tier_nothing_more_goes_for_seven_days(audit):
    """A clock that is set back has lost nothing."""
    await add_past(audit)
    await move(audit, "free")
    audit.clock.now = START + 7 * DAY + PRUNE_DELAY
    assert await prune(audit) == []
    assert len(await left(audit)) == 12

    audit.clock.advance(microseconds=1)

    assert [found.rows for found in await prune(audit)] == [12]


async def test_what_was_past_the_higher_tier_goes_meanwhile(audit):
    await add_past(audit, START - 400 * DAY)
    await add_past(audit)
    await move(audit, "free")

    assert [found.rows for found in await prune(audit)] == [12]
    assert len(await left(audit)) == 12


async def test_a_tier_raised_in_time_keeps_what_it_shows_again(audit):
    """Lowered and raised again within the week, and nothing is gone."""
    await add_past(audit)
    await move(audit, "free")
    audit.clock.advance(days=6)
    await move(audit, "org")
    audit.clock.advance(days=30)

    assert await prune(audit) == []
    assert len(await left(audit)) == 12


async def test_a_tier_raised_and_lowered_counts_for_the_week_after(past):
    await move(past, "enterprise")
    past.clock.advance(minutes=1)
    await move(past, "free")
    past.clock.now += 7 * DAY + PRUNE_DELAY
    assert await prune(past) == []

    past.clock.advance(microseconds=1)

    assert [found.rows for found in await prune(past)] == [12]


async def test_a_held_organisation_loses_nothing_until_it_is_released(past):
    await put_on_hold(past)
    (held,) = await prune(past)
    assert (held.is_held, held.rows, len(held.days)) == (True, 12, 3)
    assert len(await left(past)) == 13
    assert await pruned_rows(past) == []
    await change(past.services, lambda work, acme: release(work, acme, None, BY_OPERATOR))

    (dropped,) = await prune(past)

    assert (dropped.is_held, dropped.rows) == (False, 12)
    assert len(await left(past)) == 1


async def test_a_forecast_says_what_a_run_would_do_and_does_nothing(past):
    before = await left(past)

    forecast = await past.services.pruner.forecast(is_clock_accepted=True)

    assert await left(past) == before
    assert await pruned_rows(past) == []
    assert await prune(past) == forecast


@pytest.mark.parametrize("transaction", range(1, ORGS_TRANSACTION + 1))
async def test_a_tier_raised_before_the_commit_wins(past, transaction):
    """Wherever it falls between looking and dropping."""
    before_transaction(
        past,
        transaction,
        elsewhere(past, lambda work, acme: set_tier(work, acme, "team", BY_OPERATOR)),
    )

    assert await prune(past) == []
    assert len(await left(past)) == 13
    assert await pruned_rows(past) == []


@pytest.mark.parametrize("transaction", range(1, ORGS_TRANSACTION + 1))
async def test_a_hold_set_before_the_commit_wins(past, transaction):
    before_transaction(
        past,
        transaction,
        elsewhere(past, lambda work, acme: hold(work, acme, "case 4711", BY_OPERATOR)),
    )

    assert [found.is_held for found in await prune(past)] == [True]
    assert len(await left(past)) == 13


async def test_no_process_prunes_while_another_worker_has_the_lease(past, worker):
    """It may be merging the very days."""
    async with worker.lease.hold():
        with pytest.raises(LeaseTaken):
            await prune(past)

    assert len(await left(past)) == 13


async def test_who_lost_the_lease_drops_nothing(past):
    """Checked in the commit itself."""
    before_transaction(past, ORGS_TRANSACTION, by_hand(past, TAKE_OVER))

    with pytest.raises(LeaseLost):
        await prune(past)

    assert len(await left(past)) == 13
    assert await pruned_rows(past) == []


async def test_a_reader_that_found_the_days_reads_them_to_the_end(past):
    """Files stay for the grace, and journal rows were copied."""
    seen = await past.services.store.snapshot(past.world.acme.id)
    count = await past.services.lake.queries.run(lambda reader: reader.count(seen, Query()))
    files = list(past.services.settings.audit_dir.glob("*/day=2026-02-*/*.parquet"))
    assert len(files) == 2

    await prune(past)
    past.clock.advance(seconds=GRACE_S)
    assert await past.services.garbage_collector.unlink_retired() == 0
    assert await past.services.lake.queries.run(lambda reader: reader.count(seen, Query())) == count

    past.clock.advance(microseconds=1)
    assert await past.services.garbage_collector.unlink_retired() == 2
    assert not any(file.exists() for file in files)


async def test_the_grace_of_files_begins_with_the_commit(past):
    """A run may be long; a reader may have begun just before its last organisation."""
    before_transaction(past, ORGS_TRANSACTION, lambda: past.clock.advance(seconds=60))
    await prune(past)

    past.clock.now = START + timedelta(seconds=GRACE_S + 60)
    assert await past.services.garbage_collector.unlink_retired() == 0
    past.clock.advance(microseconds=1)
    assert await past.services.garbage_collector.unlink_retired() == 2


async def test_late_rows_of_a_day_that_is_gone_go_with_the_next_run(past):
    await prune(past)
    await past.accept([sample_row(LONG_AGO)])

    assert [found.rows for found in await prune(past)] == [1]
    assert [row["payload"]["rows"] for row in await pruned_rows(past)] == [1, 12]
