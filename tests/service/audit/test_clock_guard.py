"""A clock that has stepped ahead must not make history look old."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from sqlalchemy import delete, select
from structlog.testing import capture_logs

from analytics.model.instants import format_us
from service.app.background_jobs import maintenance
from service.app.bootstrap import prepare
from service.audit.clock_guard import DIFFERENCE_MAX, ClockRecord, Clocks
from service.audit.refusals import ClockNotTrusted
from service.core.clock import Uptime
from service.store.tables import Fact
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.polling import HANG_S
from tests.service.audit.meanwhile import before_transaction
from tests.service.audit.pruning import (
    DAY,
    EVENT,
    STEP,
    add_past,
    always_on,
    left,
    prune,
    pruned_rows,
)
from tests.service.audit.test_import import take
from tests.service.pages.page import ORG, open_page

HOUR = timedelta(hours=1)
SAFE = 48 * HOUR


@pytest.fixture
def settings(tmp_path):
    """Rounds that follow each other at once."""
    return msgspec.structs.replace(settings_over(tmp_path), seal_interval_s=0.001)


@pytest.fixture(autouse=True)
def machine(monkeypatch, clock):
    """A machine whose uptime is known: it counts on unless the clock jumps."""
    for module in ("composition", "bootstrap"):
        monkeypatch.setattr(f"service.app.{module}.machine_uptime", clock.uptime)


@pytest.fixture
async def past(audit):
    """12 old rows, and a record that `prepare` has made at START."""
    await always_on(audit, "free")
    await add_past(audit)
    return audit


async def recorded(audit) -> str | None:
    async with audit.services.store.read() as session:
        return await session.scalar(select(Fact.value).where(Fact.name == "pruner_clock"))


async def guarded(audit) -> list[int]:
    """The rows that a run drops which goes by the guard."""
    return [found.rows for found in await prune(audit, is_clock_accepted=False)]


@pytest.mark.parametrize("ahead", [SAFE + STEP, 49 * HOUR, timedelta(days=4000)])
async def test_a_clock_far_past_the_last_run_is_refused_and_nothing_changes(past, ahead):
    """Also for the very first run: the record was there before it."""
    before = await left(past), await recorded(past)
    past.clock.now = START + ahead

    with pytest.raises(ClockNotTrusted, match="--accept-clock") as refused:
        await guarded(past)

    assert (refused.value.now, refused.value.last_run_at) == (START + ahead, START)
    assert "\n" not in refused.value.text
    assert (await left(past), await recorded(past)) == before
    assert await pruned_rows(past) == []


@pytest.mark.parametrize("ahead", [timedelta(0), 47 * HOUR, SAFE])
async def test_a_clock_within_48_hours_is_trusted(past, ahead):
    past.clock.now = START + ahead

    assert await guarded(past) == [12]


async def test_every_run_moves_the_record_also_one_with_nothing_to_do(audit):
    """A quiet service is not mistaken for one whose clock has stepped."""
    for _ in range(3):
        audit.clock.advance(hours=47)
        assert await guarded(audit) == []
        assert await recorded(audit) == f"{audit.clock.now:%Y-%m-%dT%H:%M:%S.%fZ}"


async def test_an_accepted_clock_is_the_record_from_then_on(past):
    past.clock.now = START + 49 * HOUR
    assert [found.rows for found in await prune(past, is_clock_accepted=True)] == [12]
    past.clock.advance(hours=47)

    assert await guarded(past) == []


async def test_jumps_that_each_pass_do_not_add_up(past):
    """By 47 hours before each run: two of them are more than the machine has run."""
    assert await guarded(past) == [12]
    past.clock.jump(47 * HOUR)
    assert await guarded(past) == []
    before = await recorded(past)
    past.clock.advance(hours=1)
    past.clock.jump(47 * HOUR)

    with pytest.raises(ClockNotTrusted, match="moved 94 hours further") as refused:
        await guarded(past)

    assert refused.value.reason == "ahead"
    assert await recorded(past) == before
    past.clock.jump(-94 * HOUR)
    assert await guarded(past) == []


async def test_a_clock_that_goes_back_gains_nothing(past):
    """Otherwise a clock that was wrong when the service began could jump by as much later."""
    await guarded(past)
    past.clock.jump(-400 * DAY)
    await guarded(past)
    for _ in range(2):
        past.clock.jump(25 * HOUR)
        with contextlib.suppress(ClockNotTrusted):
            await guarded(past)

    with pytest.raises(ClockNotTrusted, match="moved 50 hours further"):
        await guarded(past)


async def test_another_start_of_the_machine_begins_with_what_was_measured(past, monkeypatch):
    """A restart between two jumps does not hide the first one."""
    await guarded(past)
    past.clock.jump(47 * HOUR)
    await guarded(past)

    monkeypatch.setattr(
        past.services.clock_guard, "_uptime", lambda: replace(past.clock.uptime(), boot="another")
    )
    await guarded(past)
    past.clock.jump(2 * HOUR)

    with pytest.raises(ClockNotTrusted, match="moved 49 hours further"):
        await guarded(past)


@pytest.mark.parametrize("sign", [1, -1])
def test_two_clocks_must_agree(sign):
    record = ClockRecord(START, {})
    uptime = Uptime("a", 0.0)
    agreeing = Clocks(START, START + sign * DIFFERENCE_MAX, uptime)
    assert record.after_run(agreeing).last_run_at == min(agreeing.store, agreeing.machine)
    differing = Clocks(START, START + sign * (DIFFERENCE_MAX + STEP), uptime)

    with pytest.raises(ClockNotTrusted, match="the database's clock says") as refused:
        record.after_run(differing)

    assert refused.value.reason == "different"


async def test_an_accepted_clock_is_a_row_of_each_organisation(past):
    """It says what was confirmed, and why; a clock that passes needs no row."""
    await prune(past)
    assert await past.pages(event="clock_accepted") == []
    past.clock.now = START + 49 * HOUR

    await prune(past, slug="acme")

    (row,) = await past.pages(event="clock_accepted")
    assert row["payload"] == {
        "clock": format_us(START + 49 * HOUR),
        "machine_clock": format_us(START + 49 * HOUR),
        "last_run_at": format_us(START),
        "reason": "late",
    }
    assert (row["actor"], row["verdict_source"]) == ("system:cli", "cli")
    assert len(await past.pages(slug="other", event="clock_accepted")) == 1


async def _import_one(audit) -> None:
    envelope = {"rule_id": "r", "source": "osv"}
    # Not of the day of the import's own row, which is noted, too.
    at = format_us(audit.clock.now - DAY)
    item = {"created_at": at, "event": EVENT, "envelope": envelope}
    assert (await take(audit, msgspec.json.encode(item))).rows == 1


@pytest.mark.parametrize("is_imported", [False, True])
async def test_rows_that_a_slow_clock_dated_are_kept_as_if_it_were_right(audit, is_imported):
    """They are hidden by the instant that they bear, and not deleted by it."""
    await always_on(audit, "free")
    audit.clock.jump(-400 * DAY)
    if is_imported:
        await _import_one(audit)
    else:
        await audit.accept([sample_row(audit.clock.now)])
    (dated,) = await left(audit)
    audit.clock.jump(400 * DAY)
    audit.clock.advance(days=8)
    assert await prune(audit) == []
    assert await left(audit) == [dated]
    await audit.seal()
    audit.clock.now = START + 9 * DAY
    assert await prune(audit) == []
    assert await left(audit) == [dated]
    audit.clock.advance(days=1)

    assert await prune(audit) != []
    assert await left(audit) == []


async def test_a_clock_behind_the_record_is_trusted_and_its_way_back_is_not(past):
    """By an early clock less is old. Set right again it is far past the record."""
    past.clock.now = START - 49 * HOUR
    assert await guarded(past) == [12]
    past.clock.now = START

    with pytest.raises(ClockNotTrusted):
        await guarded(past)


async def test_preparing_again_moves_no_record(past, settings):
    """A service that starts on a stepped clock must not vouch for it."""
    past.clock.now = START + 49 * HOUR
    await prepare(settings, past.clock)

    with pytest.raises(ClockNotTrusted):
        await guarded(past)


async def test_preparing_makes_the_record_that_is_missing(past, settings):
    """Without one there is nothing to go by, and no run does."""
    async with past.services.store.write() as work:
        await work.session.execute(delete(Fact).where(Fact.name == "pruner_clock"))
    with pytest.raises(ClockNotTrusted, match="no earlier run is on record"):
        await guarded(past)

    await prepare(settings, past.clock)

    assert await guarded(past) == [12]


async def test_a_forecast_is_refused_like_a_run_and_records_nothing(past):
    past.clock.now = START + 49 * HOUR
    before = await recorded(past)
    with pytest.raises(ClockNotTrusted):
        await past.services.pruner.forecast()

    (seen,) = await past.services.pruner.forecast(is_clock_accepted=True)

    assert seen.rows == 12
    assert await recorded(past) == before


@pytest.mark.parametrize("transaction", [1, 2, 3])
async def test_a_clock_that_steps_during_a_run_drops_nothing_more(past, transaction):
    await past.accept([sample_row(START)])
    before_transaction(past, transaction, lambda: past.clock.advance(days=4000))

    assert await guarded(past) == [12]
    assert len(await left(past)) == 1
    assert await recorded(past) == f"{START:%Y-%m-%dT%H:%M:%S.%fZ}"


async def test_the_background_says_once_that_it_refuses_and_goes_on(past):
    past.clock.now = START + 49 * HOUR
    stop = asyncio.Event()
    with capture_logs() as logs:
        rounds = asyncio.create_task(maintenance(past.services).run(stop))
        async with asyncio.timeout(HANG_S):
            while "prune_refused" not in {line["event"] for line in logs}:
                await past.services.store.ping()
            for _ in range(50):
                await past.services.store.ping()
            past.clock.advance(seconds=past.services.settings.prune_interval_s)
            while [line["event"] for line in logs].count("prune_refused") < 2:
                await past.services.store.ping()
        stop.set()
        await asyncio.wait_for(rounds, HANG_S)

    first, second = [line for line in logs if line["event"] == "prune_refused"]
    assert first == {
        "event": "prune_refused",
        "log_level": "error",
        "reason": "late",
        "why": (
            "the clock says 2026-03-06T13:00:00.123Z,"
            " over 48 hours past the last pruning run (2026-03-04T12:00:00.123Z)"
        ),
        "clock": "2026-03-06T13:00:00.123456Z",
        "last_run_at": "2026-03-04T12:00:00.123456Z",
    }
    assert second["clock"] == "2026-03-06T14:00:00.123456Z"
    assert not {"maintenance_failed", "days_pruned"} & {line["event"] for line in logs}
    shown = past.services.metrics.exposition().decode()
    assert 'countersign_maintenance_failures_total{task="prune"} 2.0' in shown
    assert "countersign_prune_refused 1.0" in shown
    assert len(await left(past)) == 12
    await prune(past)
    await past.services.pruner.prune_in_background()
    assert "countersign_prune_refused 0.0" in past.services.metrics.exposition().decode()


async def test_the_overview_says_that_nothing_is_dropped(past):
    """People who wonder about old rows see why."""
    past.clock.now = START + SAFE
    assert "none are dropped" not in (await open_page(past.world, ORG, **past.world.admin)).html
    past.clock.now = START + 49 * HOUR

    page = await open_page(past.world, ORG, **past.world.admin)

    assert "none are dropped at present: the clock says 2026-03-06T13:00:00.123Z" in page.html


async def test_the_background_prunes_by_itself(past):
    stop = asyncio.Event()
    rounds = asyncio.create_task(maintenance(past.services).run(stop))
    async with asyncio.timeout(HANG_S):
        while not await pruned_rows(past):
            await past.services.store.ping()
    stop.set()
    await asyncio.wait_for(rounds, HANG_S)

    assert [row["payload"]["rows"] for row in await pruned_rows(past)] == [12]
    assert await left(past) == []
