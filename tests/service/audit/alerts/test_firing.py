"""A rule fires once for each burst of rows, whenever they arrive, and says which rows they are."""

import random
from datetime import timedelta
from itertools import count

import pytest

from analytics.model.instants import format_us
from analytics.query.buckets import Bucket
from tests.analytics.samples import sample_row
from tests.budgets import budget
from tests.conftest import START
from tests.crashes import PowerCut, kill_process, power_cut_after
from tests.service.audit.alerts.watching import ALERTS, RULES, ask, create, fired, tried
from tests.service.audit.pruning import DAY, always_on, prune

MINUTE = timedelta(minutes=1)


def rows(number: int, minutes: float = 0, **changes):
    return [sample_row(START + minutes * MINUTE, **changes) for _ in range(number)]


def minute_of(minutes: float) -> str:
    return format_us(Bucket.MINUTE.start(START + minutes * MINUTE))


async def test_it_fires_once_the_window_has_enough_rows_and_names_them(audit):
    await create(audit)
    audit.clock.advance(minutes=4)
    await audit.accept(rows(2, 1))
    assert await fired(audit) == []
    await audit.accept(rows(1, 4))

    (alert,) = await fired(audit)

    assert (alert["rule"], alert["rows"], alert["state"]) == ("Blocked", 3, "open")
    shown = await audit.page(decision="BLOCKED")
    assert alert["row_ids"] == [row["id"] for row in shown["entries"]]
    (row,) = (await audit.page(event="alert_fired"))["entries"]
    assert (row["subject"], row["payload"]["row_ids"]) == (alert["id"], alert["row_ids"])


async def test_rows_that_are_spread_out_do_not_fire(audit):
    await create(audit)
    for minutes in range(0, 60, 3):
        audit.clock.now = START + minutes * MINUTE
        await audit.accept(rows(1, minutes))
        assert await fired(audit) == []


async def test_it_is_silent_for_an_hour_for_the_same_key_alone(audit):
    await create(audit, per="actor")
    for minutes in (0, 20, 40, 59, 60, 61):
        audit.clock.now = START + minutes * MINUTE
        await audit.accept(rows(3, minutes, actor="key_a"))
        await fired(audit)
    await audit.accept(rows(3, 61, actor="key_b"))

    alerts = await fired(audit)

    found = [(alert["key"], alert["fired_at"]) for alert in alerts]
    assert sorted(found) == [
        ("key_a", minute_of(0)),
        ("key_a", minute_of(60)),
        ("key_b", minute_of(61)),
    ]
    assert {len(alert["row_ids"]) for alert in alerts} == {3, 6}


async def test_rows_that_arrive_late_fire_and_history_does_not(audit):
    """An ingest client may have been offline for an hour; an import of last year is no alarm."""
    await create(audit)
    audit.clock.advance(hours=30)
    await audit.accept(rows(3, 60 * 29))
    await audit.accept(rows(3, 60))
    assert [alert["fired_at"] for alert in await fired(audit)] == [minute_of(29 * 60)]


async def test_rows_before_the_rule_do_not_fire(audit):
    await audit.accept(rows(5))
    audit.clock.advance(minutes=10)
    rule_id = await create(audit)
    assert await fired(audit) == []
    await ask(audit, "put", f"{RULES}/{rule_id}", {"name": "Blocked", "query": "decision=BLOCKED"})
    await audit.accept(rows(1, 10))
    assert len(await fired(audit)) == 1


async def test_a_rule_that_is_off_or_deleted_does_not_fire(audit):
    off, gone = await create(audit, name="off", is_on=False), await create(audit, name="gone")
    await ask(audit, "delete", f"{RULES}/{gone}")
    await audit.accept(rows(5))
    assert await fired(audit) == []
    listed = await ask(audit, "get", RULES)
    assert [rule["id"] for rule in listed["rules"]] == [off]


async def test_a_rule_of_everything_does_not_fire_of_its_own_alerts(audit):
    await create(audit, query="verdict_source=!cli", at_least=1)
    await audit.accept(rows(1))
    assert len(await fired(audit)) == 1
    for hours in range(1, 4):
        audit.clock.now = START + timedelta(hours=hours)
        assert len(await fired(audit)) == 1


async def test_a_rule_with_a_key_for_each_row_says_no_more_than_a_hundred_an_hour(audit):
    await create(audit, per="request_id", at_least=1)
    await audit.accept([sample_row(START, request_id=f"req_{n}") for n in range(250)])
    assert len(await fired(audit)) == 100
    await audit.accept([sample_row(START, request_id=f"req_x{n}") for n in range(250)])
    assert len(await fired(audit)) == 100


async def test_another_organisations_rows_do_not_fire(audit):
    await create(audit)
    await audit.accept(rows(5), audit.world.other)
    assert await fired(audit) == []


@pytest.mark.parametrize("seed", range(budget(1, 3)))
async def test_what_fires_is_what_a_backtest_finds(audit, seed):
    """Whatever the order in which rows arrive, are sealed and are counted."""
    chance = random.Random(seed)
    await create(audit, per="actor", at_least=4, window="10m")
    for minute in range(0, 600, 7):
        audit.clock.now = START + minute * MINUTE
        at = minute - chance.choice((0, 0, 0, 1, 5))
        await audit.accept(rows(chance.randrange(5), at, actor=f"key_{chance.randrange(3)}"))
        if chance.random() < 0.5:
            await audit.services.alerts.watch_due()
        if chance.random() < 0.1:
            await audit.seal()
    live = [(alert["fired_at"], alert["key"]) for alert in await fired(audit)]

    test = await tried(audit, days=1, per="actor", at_least=4, window="10m")

    assert live, f"seed {seed}"
    found = sorted((alert["fired_at"], alert["key"]) for alert in test["alerts"])
    assert sorted(live) == found, f"seed {seed}"


@pytest.mark.parametrize(("at_least", "window"), [(1, 1), (3, 7), (6, 60), (9, 200)])
async def test_a_backtest_finds_each_full_window(audit, at_least, window):
    """As a reader of the log would: minute by minute, one value after the other."""
    chance = random.Random(at_least)
    minutes = [(chance.randrange(900), f"key_{chance.randrange(4)}") for _ in range(250)]
    await audit.accept([row for at, key in minutes for row in rows(1, at, actor=key)])
    await audit.seal()
    audit.clock.now = START + 1000 * MINUTE
    full = [
        (at, key)
        for key in ("key_0", "key_1", "key_2", "key_3")
        for at in range(900)
        if (at, key) in minutes
        and sum(of == key and at - window < each <= at for each, of in minutes) >= at_least
    ]
    expected: list[tuple[int, str]] = []
    for at, key in full:
        if not any(of == key and at - each < 60 for each, of in expected):
            expected.append((at, key))

    test = await tried(audit, days=1, per="actor", at_least=at_least, window=f"{window}m")

    found = sorted((alert["fired_at"], alert["key"]) for alert in test["alerts"])
    assert expected
    assert found == sorted((minute_of(at), key) for at, key in expected)


async def test_alerts_go_with_the_rows_that_they_name(audit):
    """What retention deletes of the log is not kept by its alerts."""
    await always_on(audit, "free")
    await create(audit, per="actor", at_least=1)
    for days, key in ((0, "key_old"), (12, "key_new")):
        audit.clock.now = START + days * DAY
        await audit.accept([sample_row(audit.clock.now, actor=key)])
        await fired(audit)

    await prune(audit)

    assert [alert["key"] for alert in await fired(audit)] == ["key_new"]


async def test_people_acknowledge_and_close_with_a_note(audit):
    await create(audit, at_least=1)
    await audit.accept(rows(1))
    (alert,) = await fired(audit)
    path = f"{ALERTS}/{alert['id']}/handle"
    await ask(audit, "post", path, {"state": "acknowledged", "note": "Looking"})
    assert await fired(audit, state="open") == []
    closed = await ask(audit, "post", path, {"state": "closed"})
    assert (closed["state"], closed["note"]) == ("closed", None)
    assert closed["handled_by"] == "system:admin-token"
    handled = (await audit.page(event="alert_handled"))["entries"]
    assert [row["payload"]["note"] for row in handled] == [None, "Looking"]
    other = ALERTS.replace("acme", "other")
    response = await audit.world.client.post(
        f"{other}/{alert['id']}/handle", headers=audit.world.admin, json={"state": "closed"}
    )
    assert response.status_code == 404


async def said(audit) -> tuple[list[str], list[str]]:
    """The alerts, and those of which the log has a row."""
    alerts = (await ask(audit, "get", ALERTS))["alerts"]
    rows = (await audit.page(event="alert_fired"))["entries"]
    return [alert["id"] for alert in alerts], [row["subject"] for row in rows]


async def test_a_crash_at_any_step_of_a_round_fires_once(audit):
    await create(audit, at_least=1)
    await audit.accept(rows(1))
    for steps in count():
        try:
            with power_cut_after(steps, audit.services.store):
                await audit.services.alerts.watch_due()
        except PowerCut:
            alerts, told = await said(audit)
            assert alerts == told
        else:
            break

    assert steps > 5
    alerts, told = await said(audit)
    assert (len(alerts), told) == (1, alerts)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["INSERT INTO alert_firings", "INSERT INTO journal", "END"])
async def test_a_process_that_is_killed_fires_once(audit, step):
    """And so does one that takes the lease over."""
    await create(audit, at_least=1)
    await audit.accept(rows(1))
    await kill_process(audit.services.settings, audit.clock.now, "alert", step)

    assert len(await fired(audit)) == 1
    alerts, told = await said(audit)
    assert (len(alerts), told) == (1, alerts)
