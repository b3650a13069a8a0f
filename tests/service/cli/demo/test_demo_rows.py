"""The demo's rows as a visitor of the dashboard finds them."""

import re
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from analytics.model.decision_reason import decision_reason
from analytics.model.envelopes import ENVELOPES, parse_envelope
from analytics.model.events import Event
from analytics.model.instants import format_us
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION
from service.cli.demo.seed import DEMO_ORG, seed_demo
from service.core.settings import Settings
from service.store.organisations import get_org, list_members
from service.store.tables import Session
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, START, SettableClock, bindings_path
from tests.service.cli.demo.conftest import INSTALLS, Demo, Row, seeded_demo

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.slow]

DOCUMENTATION_NETWORKS = [
    ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
]
NEW_ID = re.compile(r"\b(org|proj|team|mem|key|obind)_([0-9a-z]{16}\b|[0-9a-z]*…)")


@only_full
async def test_it_is_ninety_days_of_at_least_200000_rows(rows: list[Row]):
    assert len(rows) >= 200_000
    assert len({row.created_at.date() for row in rows}) == 90
    assert all(START - timedelta(days=90) <= row.created_at for row in rows)
    assert all(row.created_at <= row.received_at <= START for row in rows)


@only_full
async def test_ids_follow_time_without_a_gap(rows: list[Row]):
    """Rows of one tenant that shares the counter with no other are numbered through."""
    numbers = [int(row.id.removeprefix("aud_")) for row in rows]

    assert numbers == list(range(numbers[0], numbers[0] - len(rows), -1))


@only_full
async def test_progress_goes_from_little_to_all(demo: Demo, rows: list[Row]):
    done = [done for done, _ in demo.progress]

    assert done == sorted(done)
    assert {total for _, total in demo.progress} == {len(rows)} == {done[-1]}


@only_full
async def test_seeding_again_changes_nothing(demo: Demo):
    before = await demo.audit(limit=1, event=["member_added", "install_allowed"])

    assert not await seed_demo(demo.services, START + timedelta(days=1), lambda *_: None)
    assert await demo.audit(limit=1, event=["member_added", "install_allowed"]) == before


async def test_breaking_off_leaves_nothing(settings: Settings):
    app = create_app(await prepare(settings), SettableClock())

    def stop(*_: int) -> None:
        raise KeyError("stopped")

    with pytest.raises(KeyError, match="stopped"):
        await seed_demo(app.extensions[EXTENSION], START, stop)
    async with app.test_app():
        answer = await app.test_client().get(
            bindings_path(DEMO_ORG), headers={"x-service-admin-token": ADMIN_TOKEN}
        )
    assert answer.status_code == 404


@only_full
async def test_every_envelope_is_its_events_and_fits_its_column(rows: list[Row]):
    for payload, event, reason in {
        (msgspec.json.encode({k: v for k, v in row.payload.items() if k != "ci"}), row.event, text)
        for row in rows
        for text in [row.decision_reason]
    }:
        keys = msgspec.json.decode(payload)
        parse_envelope(Event(event), keys)
        assert reason == decision_reason(keys)


@only_full
async def test_decision_and_package_belong_to_installs_alone(rows: list[Row]):
    for row in rows:
        assert row.decision == ENVELOPES[Event(row.event)].decision
        assert (row.package_name is not None) == (row.event in INSTALLS)
        assert (row.ecosystem in {"npm", "pypi"}) == (row.event in INSTALLS)
        assert (row.verdict_source == "proxy") == (row.event in INSTALLS)


@only_full
async def test_work_is_done_by_day_and_in_the_week_but_some_at_night(rows: list[Row]):
    hours = Counter(row.created_at.hour for row in rows)
    by_day = Counter(row.created_at.date() for row in rows if row.created_at.hour in range(8, 17))
    week = [count for day, count in by_day.items() if day.weekday() < 5 and day != START.date()]
    weekend = [count for day, count in by_day.items() if day.weekday() >= 5]

    assert sum(hours[hour] for hour in range(8, 17)) > 0.65 * len(rows)
    assert all(hours[hour] > 0 for hour in range(24))
    assert hours[2] > hours[5]  # nightly builds
    assert min(week) > 3 * max(weekend)


@only_full
async def test_a_few_packages_are_popular_and_most_are_not(rows: list[Row]):
    installs = Counter(row.package_name for row in rows if row.package_name)
    counts = sorted(installs.values(), reverse=True)

    assert len(counts) > 150
    assert {"@acme/ui", "@babel/core", "requests"} <= installs.keys()
    assert sum(counts[: len(counts) // 5]) > 0.4 * sum(counts)


@only_full
async def test_a_request_is_one_caller_at_one_address(rows: list[Row]):
    requests = defaultdict(set)
    for row in rows:
        if row.request_id is not None:
            address = ip_address(row.source_ip or "")
            assert any(address in network for network in DOCUMENTATION_NETWORKS)
            requests[row.request_id].add((row.actor, row.subject, row.source_ip))
    assert all(len(callers) == 1 for callers in requests.values())
    assert len(rows) / len(requests) > 8


@only_full
async def test_a_blocked_package_bursts_about_three_weeks_ago(demo: Demo):
    burst = await demo.audit(package="acme-telemetry", event="blocklist_hit", decision="BLOCKED")
    first, last = burst[-1]["created_at"], burst[0]["created_at"]
    lasted = datetime.fromisoformat(last) - datetime.fromisoformat(first)

    assert len(burst) > 150
    assert timedelta(hours=2) < lasted < timedelta(hours=6)
    assert timedelta(days=19) < START - datetime.fromisoformat(last) < timedelta(days=24)
    assert len({entry["subject"] for entry in burst} - {None}) >= 8

    soon = datetime.fromisoformat(last) + timedelta(hours=2)
    revoked = await demo.audit(event="oidc_binding_revoked", since=last, until=format_us(soon))
    assert [entry["payload"]["revoked_reason"][:8] for entry in revoked] == ["INC-2107"]


@only_full
async def test_the_bad_package_got_through_before_its_rule_was_there(demo: Demo):
    blocked = await demo.audit(package="acme-telemetry", event="blocklist_hit")
    installed = await demo.audit(package="acme-telemetry", event="install_allowed")

    assert 5 <= len(installed) <= 40
    assert max(row["created_at"] for row in installed) < blocked[-1]["created_at"]
    runs = {row["run_id"] for row in installed} - {None}
    assert len(runs) >= 3
    others = await demo.audit(run_id=[*runs], package="!acme-telemetry")
    assert len(others) > len(runs)


@only_full
async def test_members_have_signed_in(demo: Demo):
    async with demo.services.store.read() as session:
        org = await get_org(session, "acme")
        members = await list_members(session, org)
        seen = {row.member_id for row in await session.scalars(select(Session))}

    assert sum(member.identity_subject is not None for member in members) > len(members) // 2
    assert seen == {member.id for member in members if member.identity_subject is not None}


@only_full
async def test_a_version_is_refused_while_it_is_too_young(rows: list[Row]):
    young = [row for row in rows if row.event == "cooldown_active"]

    assert len(young) > 200
    for row in young:
        age = row.created_at - datetime.fromisoformat(row.payload["published_at"])
        # The envelope says milliseconds.
        assert timedelta() <= age <= timedelta(days=row.payload["min_age_days"], milliseconds=1)


@only_full
async def test_passkey_counters_go_up_by_one(rows: list[Row]):
    counters: dict[str, int] = {}
    for row in reversed(rows):
        if row.event == "passkey_registered":
            counters[row.payload["credential_id"]] = 0
        if row.event == "passkey_authentication_succeeded":
            assert row.payload["counter_before"] == counters[row.payload["credential_id"]]
            counters[row.payload["credential_id"]] = row.payload["counter_after"]
    assert len(counters) >= 5
    assert max(counters.values()) > 20


@only_full
async def test_everything_that_people_do_is_there(counts: Counter[str]):
    assert counts["oauth_login_succeeded"] > 100
    assert counts["link_sign_in_succeeded"] > 5
    assert counts["sign_in_failed"] > 5
    assert counts["signed_out"] > 100
    assert counts["api_key_created"] >= 8
    assert counts["member_added"] >= 12
    assert counts["audit_exported"] == counts["audit_export_finished"] >= 10


@only_full
async def test_members_act_only_while_they_are_members(rows: list[Row]):
    joined = {row.subject: row.created_at for row in rows if row.event == "member_added"}
    left = {row.subject: row.created_at for row in rows if row.event == "member_removed"}

    assert left
    for row in rows:
        if row.actor_source == "session":
            member_id = row.actor.partition(":")[2]
            assert joined[member_id] < row.created_at < left.get(member_id, START)


@only_full
async def test_an_exports_count_is_what_its_filters_find(demo: Demo, rows: list[Row]):
    exported = [row for row in rows if row.event == "audit_exported"]

    for row in exported[:3] + [row for row in exported if "package" in row.payload["filters"]]:
        found = await demo.audit(**row.payload["filters"])
        assert len(found) == row.payload["rows"] > 0


@only_full
async def test_the_list_of_exports_is_what_the_rows_tell(demo: Demo, rows: list[Row]):
    told = {row.payload["export_id"]: row for row in rows if row.event == "audit_exported"}
    ended = {r.payload["export_id"]: r for r in rows if r.event == "audit_export_finished"}
    answer = await demo.answer(f"/api/v1/admin/orgs/{DEMO_ORG}/exports")
    exports = (await answer.get_json())["exports"]
    listed = [one for one in exports if one["actor_source"] == "session"]  # but for the tests' own

    assert {one["id"] for one in listed} == set(told)
    for one in listed:
        assert one["state"] == "finished"
        assert one["actor"] == told[one["id"]].actor
        assert one["rows"] == told[one["id"]].payload["rows"]
        assert one["sha256"] == ended[one["id"]].payload["sha256"]
        assert one["watermark"] < int(told[one["id"]].id.removeprefix("aud_"))


@only_full
async def test_the_past_is_reported_as_it_was(demo: Demo, rows: list[Row]):
    path = f"/api/v1/admin/orgs/{DEMO_ORG}/access-report"
    removed = [row for row in rows if row.event == "member_removed"]
    changed = [row for row in rows if row.event == "member_role_changed"]
    assert removed
    for row in removed + changed:
        before = format_us(row.created_at - timedelta(seconds=1))
        report = await (await demo.answer(path, asOf=before)).get_json()
        roles = {one["id"]: one["role"] for one in report["members"]}

        assert report["is_complete"]
        assert roles[row.subject or ""] == row.payload.get("role", row.payload.get("role_before"))


@only_full
async def test_two_runs_are_alike(demo: Demo, tmp_path: Path):
    hour = {"since": "2026-02-11T15:30:00Z", "until": "2026-02-11T16:30:00Z"}
    admin = {"verdict_source": "admin_api"}
    people = {"verdict_source": "dashboard", "until": "2026-03-03"}
    async with seeded_demo(tmp_path) as again:
        for query in (hour, admin, people):
            first, second = await demo.audit(**query), await again.audit(**query)
            assert len(first) > 10
            assert _masked(first) == _masked(second)
        assert _masked(await demo.bindings()) == _masked(await again.bindings())


def _masked(entries: list[dict[str, object]]) -> list[object]:
    """`entries` without what `new_id` made; the order among equals is theirs, too."""
    texts = (msgspec.json.encode(entry).decode() for entry in entries)
    return sorted(NEW_ID.sub(r"\1", text) for text in texts)
