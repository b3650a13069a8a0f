"""What a rule may say: filters, conditions, hours, and the part of Sigma that filters can say."""

import re
from datetime import timedelta

import pytest

from service.audit.alerts.alerts_api import SHIPPED
from service.audit.alerts.rules import parse_condition, parse_hours, parse_rule
from service.core.errors import Invalid
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.alerts.watching import ALERTS, RULES, ask, create, fired, tried

RULE = {"name": "Blocked", "query": "decision=BLOCKED"}
SIGMA = """
title: Many blocked installs of one key
name: blocked
logsource: {product: countersign, service: audit}
detection:
  selection:
    decision: BLOCKED
    packageName|startswith: [left-, right-]
  other:
    actor: [key_a, key_b]
  condition: selection and not other
---
title: Burst
correlation:
  type: event_count
  rules: [blocked]
  group-by: [actor]
  timespan: 10m
  condition: {gte: 5}
"""


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": "package=a&last=7d"}, "query"),
        ({"query": "colour=red"}, "query"),
        ({"query": "&".join(f"actor=a{n}" for n in range(98))}, "at most 97 filter values"),
        ({"query": "repository_id=@revoked&repository_id=7"}, "no repository_id beside @revoked"),
        ({"window": "5s"}, "window"),
        ({"window": "90d"}, "window"),
        ({"window": "30m", "kind": "silence"}, "window"),
        ({"per": "colour"}, "per"),
        ({"at_least": 0}, "at_least"),
        ({"where": ["role"]}, "where"),
        ({"where": ["rows>=many"]}, "where"),
        ({"where": ["a=b"] * 11}, "where"),
        ({"outside": "Mon-Fri"}, "outside"),
        ({"outside": "Mon-Fri 08:00-18:00 Nowhere/City"}, "outside"),
        ({"outside": "Mon-Fri 08:00-18:00 ../../etc/passwd"}, "outside"),
        ({"outside": "Fri-Mon 08:00-18:00 UTC"}, "outside"),
        ({"kind": "seal"}, "query"),
        ({"query": "", "kind": "rejected", "at_least": 2}, "at_least"),
        ({"sigma": SIGMA}, "sigma"),
        ({"query": "", "sigma": "x" * 20_000}, "sigma"),
        ({"name": ""}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_wrong_rule_is_refused_at_its_field_and_changes_nothing(audit, wrong, field):
    response = await audit.world.client.post(RULES, headers=audit.world.admin, json=RULE | wrong)
    assert response.status_code == 400
    assert field in (await response.get_json())["error"]
    assert (await ask(audit, "get", RULES))["rules"] == []
    tried = await ask(audit, "post", f"{ALERTS}/backtest", {"rule": RULE | wrong}, 400)
    assert tried["error"] == f"rule: {(await response.get_json())['error']}"


def test_each_shipped_rule_is_valid_and_off():
    for rule in SHIPPED:
        given = {name: getattr(rule, name) for name in rule.__struct_fields__}
        assert parse_rule(given | {"where": list(rule.where)}).name == rule.name
        assert not rule.is_on


def test_sigma_is_read_as_filters():
    rule = parse_rule({"name": "Burst", "sigma": SIGMA})
    assert (
        rule.query
        == "decision=BLOCKED&package=left-%2A&package=right-%2A&actor=%21key_a&actor=%21key_b"
    )
    assert (rule.at_least, rule.window, rule.per, rule.sigma) == (5, "10m", "actor", None)


def test_a_burst_of_sigma_may_take_as_long_as_any():
    rule = parse_rule({"name": "Burst", "sigma": SIGMA.replace("10m", "7d")})
    assert rule.length == timedelta(days=7)


@pytest.mark.parametrize(
    ("written", "wrong", "text"),
    [
        ("gte: 5", "gte: 1.5", "at_least must be an integer from 1 to 1000000"),
        ("gte: 5", "gte: 0", "at_least must be an integer from 1 to 1000000"),
        ("gte: 5", "gt: 99999999999999999999", "at_least must be an integer from 1 to 1000000"),
        ("10m", "90s", "sigma: timespan must be whole minutes, such as 10m"),
        ("10m", "30s", "sigma: timespan must be whole minutes, such as 10m"),
        ("10m", "8d", "at most 7 days"),
    ],
)
def test_a_burst_of_sigma_that_no_rule_can_mean_is_refused(written, wrong, text):
    with pytest.raises(Invalid, match=re.escape(text)):
        parse_rule({"name": "Burst", "sigma": SIGMA.replace(written, wrong)})


SELECTION = """title: t
logsource: {product: countersign}
detection:
  selection:
    {field}: {value}
  condition: {condition}
"""


@pytest.mark.parametrize(
    ("field", "value", "condition"),
    [
        ("colour", "red", "selection"),
        ("actor|contains", "key", "selection"),
        ("actor|endswith", "key", "selection"),
        ("actor|re", "key.*", "selection"),
        ("actor", "'k*y'", "selection"),
        ("actor", "key", "selection and other"),
        ("actor", "key", "1 of"),
        ("actor", "[key", "selection"),
        ("actor", "&a [&b [*a, *a]]", "selection"),
        ("actor", "!!python/object/apply:os.system [true]", "selection"),
    ],
)
def test_sigma_that_filters_cannot_say_is_refused(field, value, condition):
    text = SELECTION.replace("{field}", field).replace("{value}", value)
    with pytest.raises(Invalid) as refused:
        parse_rule({"name": "x", "sigma": text.replace("{condition}", condition)})
    assert refused.value.field == "sigma"


@pytest.mark.parametrize(
    ("text", "payload", "is_met"),
    [
        ("role=owner", {"role": "owner"}, True),
        ("role=owner", {"role": "member"}, False),
        ("role=owner", {}, False),
        ("role!=owner", {}, True),
        ("role_after|role=owner", {"role_after": "owner"}, True),
        ("rows>=10", {"rows": 10}, True),
        ("rows>=10", {"rows": "10"}, False),
        ("rows<=10", {"rows": 11}, False),
        ("is_new=true", {"is_new": True}, True),
    ],
)
def test_conditions_compare_members_of_the_payload(text, payload, is_met):
    assert parse_condition(text).is_met(payload) is is_met


def test_hours_are_those_of_their_time_zone():
    hours = parse_hours("Mon-Fri 08:00-18:00 Europe/Berlin")
    monday = START.replace(month=11, day=30, year=2026, hour=7, minute=30)
    assert hours.include(monday)
    assert not hours.include(monday.replace(hour=6))
    assert not hours.include(monday - timedelta(days=1))


async def test_conditions_and_hours_hold_in_alerts_and_backtests(audit):
    rule = {"query": "event=audit_exported", "where": ["rows>=1000"], "at_least": 1}
    rule["outside"] = "Mon-Sun 00:00-00:01 UTC"
    await create(audit, **rule)
    small, large = (
        sample_row(START, event="audit_exported", payload=f'{{"rows":{rows}}}')
        for rows in (999, 1000)
    )
    await audit.accept([small])
    assert await fired(audit) == []
    await audit.accept([large])
    (alert,) = await fired(audit)
    assert len(alert["row_ids"]) == 1
    audit.clock.advance(minutes=1)
    assert (await tried(audit, **rule))["count"] == 1


async def test_a_second_rule_of_a_name_is_refused(audit):
    await create(audit)
    error = await ask(audit, "post", RULES, RULE, 409)
    assert error == {"error": "an alert rule of this name exists"}


@pytest.mark.parametrize(
    "text",
    [
        "title: " + "[" * 8_000,
        "- " * 8_000,
        "title: " + "{a: " * 4_000,
        "[1, 2]",
        "5",
        SIGMA.replace("title:", "id: 5\ntitle:", 1),
        SIGMA.replace("decision: BLOCKED", "5: BLOCKED"),
    ],
)
def test_yaml_that_is_no_rule_is_refused(text):
    """The scanner's time grows with the square of the depth: 8 KB of brackets took ten seconds."""
    with pytest.raises(Invalid) as refused:
        parse_rule({"name": "x", "sigma": text})
    assert refused.value.field == "sigma"
