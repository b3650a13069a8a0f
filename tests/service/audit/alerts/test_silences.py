"""A silence is what is far less than usual on that weekday, and nothing that was not watched."""

from datetime import timedelta

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from service.store.tables import AlertRuleEntry, Fact, JournalEntry
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.alerts.watching import BLOCKED, RULES, ask, create, fired, tried
from tests.service.audit.pruning import always_on

HOUR = timedelta(hours=1)
WEEK = timedelta(weeks=1)
QUIET = {"name": "Quiet", "kind": "silence", "query": "event=blocklist_hit", "window": "2h"}


async def usual_weeks(audit, *, until_now: bool, per_hour: int = 5, actor: str = "key_a") -> None:
    """Four weeks with rows in each of ten hours around this hour of the week; or this week, too."""
    weeks = range(0 if until_now else 1, 5)
    rows = [
        sample_row(START - week * WEEK + hours * HOUR, actor=actor)
        for week in weeks
        for hours in range(-4, 6)
        for _ in range(per_hour)
    ]
    await audit.accept(rows)


async def watch(audit, hours: float, step: float = 0.1) -> list[dict]:
    """The alerts after so many hours, with a round every six minutes."""
    for _ in range(round(hours / step)):
        audit.clock.advance(hours=step)
        await audit.services.alerts.watch_due()
    return await fired(audit)


async def test_a_source_that_went_quiet_is_found_and_named(audit):
    await usual_weeks(audit, until_now=False)
    await usual_weeks(audit, until_now=False, actor="key_b")
    await audit.accept([sample_row(START + n * HOUR / 4, actor="key_b") for n in range(20)])
    await create(audit, **QUIET, at_least=5, per="actor")

    (alert,) = await watch(audit, 3.2)

    assert (alert["key"], alert["rows"], alert["row_ids"]) == ("key_a", 0, [])
    assert alert["usual"] >= 5


async def test_much_less_than_usual_is_a_silence_if_the_rule_says_how_much(audit):
    await usual_weeks(audit, until_now=False, per_hour=50)
    await audit.accept([sample_row(START + n * HOUR / 2) for n in range(12)])
    await create(audit, **QUIET, at_least=5)
    await create(audit, **QUIET | {"name": "Less"}, at_least=5, percent=20)
    assert [alert["rule"] for alert in await watch(audit, 3.2)] == ["Less"]


async def test_nothing_is_invented_by_a_restart_or_a_new_rule(audit):
    """Rows of a window in which the service did not run were never received."""
    await usual_weeks(audit, until_now=False)
    await create(audit, **QUIET, at_least=5)
    assert await watch(audit, 0.5) == []
    audit.clock.advance(hours=2)
    assert await fired(audit) == []
    assert await watch(audit, 1) == []


async def test_a_week_without_rows_is_not_usual(audit):
    await audit.accept([sample_row(START - WEEK + n * HOUR) for n in range(-4, 4)])
    await create(audit, **QUIET, at_least=1)
    assert await watch(audit, 3.2) == []


async def test_where_a_week_is_kept_the_days_before_are_usual(audit):
    """Four weeks before are hidden there; of a value with rows on two days nothing is usual."""
    await always_on(audit, "free")
    for actor, days in (("key_a", 3), ("key_b", 2)):
        hours = [day * 24 + hour for day in range(1, days + 1) for hour in range(-4, 5)]
        await audit.accept([sample_row(START - hour * HOUR, actor=actor) for hour in hours])
    await create(audit, **QUIET, at_least=1, per="actor")

    (alert,) = await watch(audit, 3.2)

    assert (alert["key"], alert["rows"], alert["usual"]) == ("key_a", 0, 1)


async def test_a_silence_of_which_nothing_is_usual_is_refused(audit):
    """And a rule of before the tier was changed is told of in the log."""
    rule_id = await create(audit, **QUIET | {"window": "5d"}, at_least=1)
    await always_on(audit, "free")
    refused = await ask(audit, "post", RULES, BLOCKED | QUIET | {"name": "x", "window": "5d"}, 400)
    assert "rows are kept for 7 days" in str(refused)
    assert (await tried(audit, **QUIET))["count"] == 0

    async with audit.services.store.write() as work:
        (await work.session.get_one(AlertRuleEntry, rule_id)).on_since = START - WEEK
        watched = f"{(START - WEEK).isoformat()} {START.isoformat()}"
        await work.session.merge(Fact(name="alerts_watched", value=watched))

    with capture_logs() as logs:
        assert await fired(audit) == []

    assert [log["event"] for log in logs if "rule" in log] == ["alert_rule_refused"]


async def test_a_backtest_finds_past_silences(audit):
    await usual_weeks(audit, until_now=False)
    audit.clock.advance(hours=3)
    body = QUIET | {"at_least": 5}
    test = await tried(audit, days=1, **body)
    assert test["count"] >= 1
    assert all(alert["rows"] == 0 for alert in test["alerts"])


@pytest.mark.parametrize("kind", ["integrity", "seal", "clock"])
async def test_a_check_that_fails_fires_until_its_alert_is_closed(audit, kind):
    await audit.accept([sample_row(START)])
    await create(audit, name="Check", kind=kind, query="", at_least=1)
    assert await fired(audit) == []
    if kind == "integrity":
        async with audit.services.store.write() as work:
            await work.session.execute(update(JournalEntry).values(damage="corrupt"))
    elif kind == "clock":
        audit.clock.jump(timedelta(days=400))
    for _ in range(3):
        audit.clock.advance(hours=1)
        alerts = await fired(audit)

    assert [alert["rule"] for alert in alerts] == ["Check"]
