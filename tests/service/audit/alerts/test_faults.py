"""What one rule cannot do, as a rule of too many rows, keeps no other rule from firing."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from analytics.model.filters import VALUES_MAX
from analytics.query.aggregates import by_step
from analytics.query.buckets import Bucket
from service.audit.alerts import alerts_api, counting, watcher
from service.audit.alerts.firings import silences, usual_before
from service.audit.alerts.rules import FILTERS_MAX, parse_rule
from service.store.tables import AlertRuleEntry, Binding
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.alerts.watching import ALERTS, BLOCKED, RULES, ask, create, fired, tried

HOUR = timedelta(hours=1)
WIDE: dict[str, Any] = {"name": "Wide", "at_least": 1, "where": ["rows>=1"]}


@pytest.mark.parametrize("limit", ["ROWS_READ_MAX", "GROUPS_MAX"])
async def test_a_rule_of_too_many_rows_keeps_no_other_waiting(audit, monkeypatch, limit):
    """Neither in its organisation nor in another one."""
    monkeypatch.setattr(counting, limit, 2)
    await create(
        audit, **(WIDE if limit == "ROWS_READ_MAX" else {"name": "x", "per": "request_id"})
    )
    rule_ids = [await create(audit, name=name, at_least=1) for name in ("a", "b", "c")]
    path = RULES.replace("acme", "other")
    response = await audit.world.client.post(
        path, headers=audit.world.admin, json=BLOCKED | {"at_least": 1}
    )
    assert response.status_code == 201
    rows = [sample_row(START, request_id=f"req_{n}") for n in range(3)]
    await audit.accept(rows)
    await audit.accept(rows, audit.world.other)

    with capture_logs() as logs:
        alerts = await fired(audit)

    assert sorted(alert["rule_id"] for alert in alerts) == sorted(rule_ids)
    assert [log["event"] for log in logs if "rule" in log] == ["alert_rule_refused"]
    response = await audit.world.client.get(
        ALERTS.replace("acme", "other"), headers=audit.world.admin
    )
    assert len((await response.get_json())["alerts"]) == 1


async def test_a_rule_of_as_many_filters_as_there_may_be_fires_and_names_its_rows(audit):
    """Its rows are those of further conditions, which must not be too many for one query."""
    rule = {
        "query": actors(FILTERS_MAX),
        "at_least": 1,
        "per": "package",
    }
    await create(audit, **rule)
    await audit.accept([sample_row(START, actor="key_7")])

    (alert,) = await fired(audit)
    (backtested,) = (await tried(audit, **rule))["alerts"]
    for query in (alert["query"], backtested["query"]):
        found = await ask(audit, "get", f"/api/v1/admin/orgs/acme/audit?{query}")
        assert [row["actor"] for row in found["entries"]] == ["key_7"]


def actors(count: int) -> str:
    return "&".join(f"actor=key_{number}" for number in range(count))


async def test_a_rule_of_before_the_limit_fires_and_is_changed_to_one_within_it(audit):
    """The refusal names the field and the limit, so that it can be."""
    rule_id = await create(audit, at_least=1)
    path, rule = f"{RULES}/{rule_id}", BLOCKED | {"at_least": 1, "query": actors(VALUES_MAX)}
    async with audit.services.store.write() as work:
        entry = await work.session.get_one(AlertRuleEntry, rule_id)
        definition = msgspec.json.decode(entry.definition) | {"query": rule["query"]}
        entry.definition = msgspec.json.encode(definition).decode()
    await audit.accept([sample_row(START, actor="key_7")])
    assert len(await fired(audit)) == 1

    for count in (VALUES_MAX, FILTERS_MAX + 1):
        refused = await ask(audit, "put", path, rule | {"query": actors(count)}, 400)
        text = f"query must have at most {FILTERS_MAX} filter values"
        assert refused == {"error": text}

    await ask(audit, "put", path, rule | {"query": actors(FILTERS_MAX)})
    assert await ask(audit, "delete", path) == {"deleted": rule_id}


@pytest.mark.parametrize(
    ("name", "value"), [("query", "later=1"), ("outside", "Mon-Fri 08:00-18:00 No/Such")]
)
async def test_a_rule_of_a_later_version_keeps_no_other_waiting(audit, name, value):
    """Neither in its organisation nor in another one."""
    await create(audit, name="a", at_least=1)
    later = await create(audit, name="later", at_least=1)
    await create(audit, name="z", at_least=1)
    async with audit.services.store.write() as work:
        entry = await work.session.get_one(AlertRuleEntry, later)
        definition = msgspec.json.decode(entry.definition) | {name: value}
        entry.definition = msgspec.json.encode(definition).decode()
    await audit.accept([sample_row(START)])

    with capture_logs() as logs:
        assert len(await fired(audit)) == 2

    said = [log["rule"] for log in logs if log["event"] == "alert_rule_refused"]
    assert said == [later]


async def test_many_repositories_may_have_had_their_bindings_revoked(audit):
    """More than one query may name."""
    revoked = {
        "issuer": "https://issuer.example",
        "sub_pattern": "*",
        "event_names": [],
        "origin": "api",
        "added_by": "key_1",
        "added_at": START,
        "revoked_at": START,
    }
    async with audit.services.store.write() as work:
        for number in range(VALUES_MAX + 20):
            own = {name: f"{name}_{number}" for name in ("id", "slot", "repository_id")}
            work.session.add(Binding(tenant_id=audit.world.acme.id, **own, **revoked))
    query = "event=install_allowed&repository_id=%40revoked"
    await create(audit, query=query, at_least=1, per="repository_id")
    rows = [
        sample_row(START, event="install_allowed", decision="ALLOWED", repository_id=name)
        for name in ("repository_id_119", "another")
    ]
    await audit.accept(rows)

    (alert,) = await fired(audit)

    assert (alert["key"], alert["rows"]) == ("repository_id_119", 1)


async def test_a_check_that_is_closed_at_once_breaks_no_round(audit):
    """It fires again in the next minute, as it still fails."""
    await audit.accept([sample_row(START)])
    await create(audit, name="Check", kind="seal", query="", at_least=1)
    audit.clock.advance(hours=3)
    (alert,) = await fired(audit)
    await ask(audit, "post", f"{ALERTS}/{alert['id']}/handle", {"state": "closed"})

    assert len(await fired(audit)) == 1
    audit.clock.advance(minutes=1)
    assert len(await fired(audit)) == 2


async def test_what_is_left_out_is_logged(audit):
    await create(audit, per="request_id", at_least=1)
    await audit.accept([sample_row(START, request_id=f"req_{n}") for n in range(130)])

    with capture_logs() as logs:
        assert len(await fired(audit)) == 100

    said = [(log["event"], log["left_out"]) for log in logs if "rule" in log]
    assert said == [("alert_fires_too_often", 30)]


async def test_after_a_pause_what_is_new_is_told_before_what_is_old(audit):
    await create(audit, per="request_id", at_least=1)
    for hours in range(1, 4):
        audit.clock.now = START + hours * HOUR
        names = [f"req_{hours}_{n}" for n in range(50)]
        await audit.accept([sample_row(audit.clock.now, request_id=name) for name in names])
    audit.clock.now = START + 9 * HOUR
    await audit.accept([sample_row(audit.clock.now, request_id="req_now")])

    alerts = await fired(audit, limit="500")

    assert (len(alerts), alerts[-1]["key"]) == (100, "req_now")


async def test_a_change_while_a_round_runs_loses_no_row(audit, monkeypatch):
    """The round has read the rule as it was, and rows that came after the change."""
    rule_id, opened = await create(audit, at_least=100), watcher.open_log

    async def open_changed(*arguments: Any) -> Any:
        monkeypatch.setattr(watcher, "open_log", opened)
        audit.clock.advance(seconds=1)
        await ask(audit, "put", f"{RULES}/{rule_id}", BLOCKED)
        await audit.accept([sample_row(START) for _ in range(3)])
        return await opened(*arguments)

    monkeypatch.setattr(watcher, "open_log", open_changed)
    assert await fired(audit) == []
    audit.clock.advance(minutes=1)

    assert len(await fired(audit)) == 1


async def test_the_rows_of_an_alert_without_a_value_have_none(audit):
    await create(audit, per="repository_id", at_least=3)
    await audit.accept([sample_row(START, repository_id=None) for _ in range(3)])
    await audit.accept([sample_row(START, repository_id="7") for _ in range(2)])

    (alert,) = await fired(audit)

    shown = (await audit.page(decision="BLOCKED"))["entries"]
    without = [row["id"] for row in shown if row["repository_id"] is None]
    assert (alert["key"], alert["row_ids"]) == ("", without)


async def test_a_backtest_of_too_many_values_is_refused(audit, monkeypatch):
    """Each is tried for each hour: without a limit one request would take minutes."""
    monkeypatch.setattr(alerts_api, "WINDOWS_MAX", 24)
    await audit.accept([sample_row(START, actor=f"key_{n}") for n in range(2)])
    audit.clock.advance(hours=2)
    rule = {"name": "Quiet", "kind": "silence", "query": "event=blocklist_hit", "window": "1h"}
    body: dict[str, Any] = {"rule": rule, "days": 1}
    assert (await ask(audit, "post", f"{ALERTS}/backtest", body))["count"] == 0

    body["rule"] = rule | {"per": "actor"}
    refused = await ask(audit, "post", f"{ALERTS}/backtest", body, 400)

    assert "too many values" in str(refused)


def test_a_silence_is_what_its_hours_say():
    """Counts of windows are those of the hours in them, also with gaps and at their edges."""
    rule = parse_rule(
        {"name": "a", "kind": "silence", "query": "event=blocklist_hit", "window": "2h"}
    )
    weeks = usual_before(rule, "enterprise")
    usual = [START - week - hours * HOUR for week in weeks for hours in (1, 2, 3)]

    def quiet(*more: datetime) -> list[tuple[int, int | None]]:
        steps = [Bucket.HOUR.number(at) for at in (*usual * 5, *more)]
        counts = by_step(pa.array(steps, pa.int64()), pa.array([""] * len(steps)))
        fires = silences(rule, counts, [START], weeks, [], 10)
        return [(each.rows, each.usual) for each in fires.last]

    assert quiet(START - 3 * HOUR) == [(0, 10)]
    assert quiet(START - 2 * HOUR) == []
