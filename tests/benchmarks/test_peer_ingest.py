"""The peer that ingest is measured beside makes the checks of form that ours makes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from analytics.model.ecosystems import Ecosystem
from analytics.model.ingest_validation import INGESTIBLE, read_items
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext, VerdictSource
from benchmarks.bench_ingest import ENUMS, items
from benchmarks.peer_ingest import COLUMNS, ITEMS_MAX, Sender, read_rows

GOOD: dict[str, Any] = {"event": "install_allowed", "packageName": "left-pad", "version": "1.0.0"}
HIT = {"event": "blocklist_hit", "envelope": {"rule_id": "GHSA-1", "source": "osv"}}
COOLDOWN = {
    "event": "cooldown_active",
    "envelope": {"published_at": "2026-01-31T08:00:00Z", "min_age_days": 7},
}
SENDER = Sender("req_1", "127.0.0.1")


def sent(change: dict[str, Any]) -> str:
    """A good item with `change`; a member that is `...` is left out."""
    return json.dumps({name: v for name, v in (GOOD | change).items() if v is not ...})


ACCEPTED = [
    sent({}),
    sent(HIT),
    sent(COOLDOWN),
    sent({"event": "oss_first_party", "envelope": {"registry": "npm.example"}}),
    sent({"version": None, "ecosystem": None, "created_at": None, "decision": None}),
    sent({"ecosystem": "npm", "decision": "ALLOWED", "created_at": "2026-01-31T08:00:00+01:00"}),
    sent({"packageName": 'a"b\\'}),
    sent({"packageName": "é" * 512, "version": "1" * 256}),
]
REFUSED = [
    sent({"event": "member_added"}),
    sent({"event": ...}),
    sent({"packageName": ...}),
    sent({"packageName": ""}),
    sent({"packageName": "a" * 513}),
    sent({"packageName": " left-pad"}),
    sent({"packageName": "left\u200bpad"}),
    sent({"packageName": 1}),
    sent({"version": "1" * 257}),
    sent({"version": "1.0\n"}),
    sent({"ecosystem": "cargo"}),
    sent({"decision": "BLOCKED"}),
    sent({"created_at": "yesterday"}),
    sent({"created_at": "2999-01-31T08:00:00Z"}),
    sent({"other": 1}),
    sent({"envelope": {"rule_id": "GHSA-1"}}),
    sent(HIT | {"envelope": {"rule_id": "GHSA-1"}}),
    sent(HIT | {"envelope": {"rule_id": "GHSA-1", "source": "rumour"}}),
    sent(HIT | {"envelope": {"rule_id": "a" * 4_097, "source": "osv"}}),
    sent(COOLDOWN | {"envelope": {"published_at": "never", "min_age_days": 7}}),
    sent(COOLDOWN | {"envelope": {"published_at": "2026-01-31T08:00:00Z", "min_age_days": -1}}),
    '{"event": "install_allowed", "packageName": "a", "packageName": "b"}',
    '{"event": "blocklist_hit", "packageName": "a",'
    ' "envelope": {"rule_id": "a", "rule_id": "b", "source": "osv"}}',
    "[]",
    "null",
]


def ours(item: str) -> bool:
    """Whether our endpoint accepts `item`."""
    context = AuditContext("system:admin-token", "admin_token", VerdictSource.PROXY)
    rows, _ = read_items([item.encode()], context, AcceptedInterval(datetime.now(UTC), None))
    return bool(rows)


@pytest.mark.parametrize(
    ("item", "is_good"),
    [*((item, True) for item in ACCEPTED), *((item, False) for item in REFUSED)],
)
def test_an_item_is_accepted_by_both_or_by_neither(item: str, is_good: bool) -> None:
    """Otherwise the table would compare less work with more."""
    rows, rejected = read_rows(f"[{item}]".encode(), SENDER)

    assert (len(rows), len(rejected)) == ((1, 0) if is_good else (0, 1))
    assert ours(item) == is_good


def test_a_refused_item_leaves_the_others() -> None:
    rows, rejected = read_rows(f"[{REFUSED[0]}, {ACCEPTED[0]}]".encode(), SENDER)

    assert len(rows) == 1
    assert [each["index"] for each in rejected] == [0]


@pytest.mark.parametrize("body", [b"", b"{}", b"[" + b"1," * ITEMS_MAX + b"1]"])
def test_another_body_is_refused_whole(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|array|truncated|too many"):
        read_rows(body, SENDER)


def test_a_row_says_what_the_item_said() -> None:
    (row,), _ = read_rows(f"[{sent(HIT | {'ecosystem': 'npm'})}]".encode(), SENDER)
    stored = dict(zip(COLUMNS, row, strict=True))

    assert stored["received_at"] == stored["created_at"]
    assert stored["payload"] == stored["decision_reason"] == '{"rule_id":"GHSA-1","source":"osv"}'
    assert (stored["event"], stored["decision"]) == ("blocklist_hit", "BLOCKED")
    assert (stored["package_name"], stored["version"]) == ("left-pad", "1.0.0")


def test_the_peers_types_have_every_value_that_may_be_sent() -> None:
    assert sorted(ENUMS["event"]) == sorted(INGESTIBLE)
    assert sorted(ENUMS["ecosystem"]) == sorted(Ecosystem)


def test_what_the_benchmark_sends_is_accepted_by_both() -> None:
    body = json.dumps(items(1)).encode()
    rows, rejected = read_rows(body, SENDER)

    assert (len(rows), rejected) == (len(items(1)), [])
    assert all(ours(json.dumps(item)) for item in items(1))
