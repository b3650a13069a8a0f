"""GET …/audit/summary: the audit log in counts."""

import asyncio
import threading
from datetime import timedelta

import pytest

from analytics.query.kept_sums import KeptSums
from service.audit.lake_queries import LakeQueries
from service.orgs.organisations import set_tier
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, refused
from tests.polling import HANG_S

INSTALLS = {"event": "blocklist_hit"}


async def summary(audit, **query):
    response = await audit.get("/summary", **query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


async def test_a_summary_says_what_was_counted_and_how(audit):
    found = await summary(audit)

    assert list(found) == ["org", "bucket", "retention_floor", "total", "buckets", "top"]
    assert found["org"] == "acme"
    assert found["bucket"] == "day"
    assert list(found["top"]) == ["event", "package", "actor", "decision"]


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_rows_are_counted_by_bucket_and_decision(audit, is_sealed):
    hour = timedelta(hours=1)
    await audit.accept(
        [
            sample_row(START - 2 * hour),
            sample_row(START - 2 * hour, decision="ALLOWED"),
            sample_row(START, decision=None, package_name="@acme/x"),
        ]
    )
    if is_sealed:
        await audit.seal()

    found = await summary(audit, bucket="hour", **INSTALLS)

    assert found["total"] == 3
    assert found["buckets"] == [
        {"start": "2026-03-04T10:00:00.000000Z", "ALLOWED": 1, "BLOCKED": 1, "other": 0},
        {"start": "2026-03-04T11:00:00.000000Z", "ALLOWED": 0, "BLOCKED": 0, "other": 0},
        {"start": "2026-03-04T12:00:00.000000Z", "ALLOWED": 0, "BLOCKED": 0, "other": 1},
    ]
    assert found["top"] == {
        "event": [{"value": "blocklist_hit", "count": 3}],
        "package": [{"value": "left-pad", "count": 2}, {"value": "@acme/x", "count": 1}],
        "actor": [{"value": "key_1", "count": 3}],
        "decision": [{"value": "ALLOWED", "count": 1}, {"value": "BLOCKED", "count": 1}],
    }


async def test_a_summary_counts_what_a_page_of_the_same_filters_shows(audit):
    await audit.accept([sample_row(START)] * 3)
    await audit.seal()
    await audit.accept([sample_row(START - timedelta(days=1))] * 2)

    for query in ({}, INSTALLS, {"event": "!blocklist_hit"}, {"actor": "key_*"}):
        shown = await audit.page(limit=1000, **query)
        assert (await summary(audit, **query))["total"] == len(shown["entries"]) > 0


@pytest.mark.parametrize(
    "window",
    [
        {"until": "0001-01-01T00:00:00Z"},
        {"since": "0001-01-01T00:00:00Z", "until": "0001-01-01T00:00:00.000001Z"},
        {"since": "9999-12-31T23:59:59.999999Z"},
    ],
)
async def test_the_ends_of_time_are_a_window_without_rows(audit, window):
    assert (await summary(audit, bucket="minute", **window))["total"] == 0


async def test_another_organisation_is_not_counted(audit):
    await audit.accept([sample_row(START)], org=audit.world.other)

    assert (await summary(audit, **INSTALLS))["total"] == 0


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("filters", [INSTALLS, {"decision": "BLOCKED"}], ids=["counted", "kept"])
async def test_retention_is_applied_to_the_instant(audit, is_sealed, filters):
    """A row leaves the count when it leaves the page (decision 28)."""
    async with audit.services.store.write() as work:
        acme = await work.session.merge(audit.world.acme)
        await set_tier(work, acme, "free", BY_OPERATOR)
    await audit.accept([sample_row(START), sample_row(START + timedelta(microseconds=1))])
    if is_sealed:
        await audit.seal()

    audit.clock.now = START + timedelta(days=7)
    assert (await summary(audit, **filters))["total"] == 2
    audit.clock.now += timedelta(microseconds=1)
    found = await summary(audit, **filters)

    assert found["total"] == 1
    assert found["retention_floor"] == "2026-03-04T12:00:00.123457Z"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"bucket": "week"}, "bucket must be one of minute, hour, day"),
        ({"bucket": ""}, "bucket must be one of minute, hour, day"),
        ({"bucket": ["day", "day"]}, "bucket may be given only once"),
        ({"order": "asc"}, "unknown query parameter: order"),
        ({"limit": "5"}, "unknown query parameter: limit"),
        ({"cursor": "x"}, "unknown query parameter: cursor"),
        ({"since": "2026-03-04", "until": "2026-03-03"}, "since must be before until"),
        (
            {"since": "2026-01-01", "until": "2028-01-01", "bucket": "hour"},
            "more than 10000 buckets: narrow since and until, or ask for longer buckets",
        ),
    ],
)
async def test_a_faulty_request_is_a_400_that_names_it(audit, query, text):
    assert await refused(await audit.get("/summary", **query)) == (400, text)


async def test_a_summary_that_is_kept_needs_no_thread(audit, monkeypatch):
    """Nor does what a few commits have added: that is a moment's work."""
    await audit.accept([sample_row(START)] * 3)
    await audit.seal()
    before = await summary(audit)
    await audit.accept([sample_row(START)] * 2)

    def refuse(*_, **__):
        raise AssertionError("a thread was asked")

    monkeypatch.setattr(LakeQueries, "run", refuse)
    monkeypatch.setattr(KeptSums, "step", refuse)
    after = await summary(audit)

    assert after["total"] == before["total"] + 2


async def test_a_summary_does_not_wait_for_a_sum_that_takes_long(audit, monkeypatch):
    await audit.accept([sample_row(START)] * 3)
    began, may_end = [], threading.Event()

    def wait(*_):
        began.append(1)
        may_end.wait(HANG_S)
        return True

    monkeypatch.setattr(KeptSums, "step", wait)
    try:
        found = [await summary(audit, **query) for query in ({}, {}, {"decision": "BLOCKED"})]
    finally:
        may_end.set()

    assert [one["total"] for one in found][2] == 3
    assert found[0] == found[1]
    assert began == [1]


async def test_a_sum_that_is_not_complete_ends_with_the_service(audit, monkeypatch):
    """Its next step would be refused by a thread that has gone, as an error of no request."""
    await audit.accept([sample_row(START)])
    may_end = threading.Event()
    monkeypatch.setattr(KeptSums, "step", lambda *_: not may_end.wait(HANG_S))
    await summary(audit)
    ((_, moving),) = audit.services.lake.queries._summing.values()

    audit.services.lake.close()
    may_end.set()
    await asyncio.wait([moving])

    assert moving.cancelled()


async def test_sums_of_organisations_without_files_are_told_apart(audit):
    """Their tuples of segments are the same empty one."""
    await audit.accept([sample_row(START)])
    await audit.accept([sample_row(START)] * 2, org=audit.world.other)

    found = [
        await (await audit.get("/summary", slug=slug, decision="BLOCKED")).get_json()
        for slug in ("acme", audit.world.other.slug)
    ]

    assert [one["total"] for one in found] == [1, 2]
