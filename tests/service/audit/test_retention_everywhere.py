"""Retention is applied to the instant at query time, at every way out."""

from datetime import timedelta

import pytest

from service.access.callers import cli_caller
from service.cli.client import Client, org_path
from service.orgs.organisations import set_tier
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, START, refused

DAYS = {"free": 7, "team": 30, "org": 365}
STEP = timedelta(microseconds=1)
EVENT = "blocklist_hit"


async def put_on_tier(audit, tier: str) -> None:
    async with audit.services.store.write() as work:
        acme = await work.session.merge(audit.world.acme)
        if acme.tier != tier:
            await set_tier(work, acme, tier, BY_OPERATOR)


@pytest.mark.parametrize("tier", DAYS)
async def test_a_page_names_the_floor_of_the_tier(audit, tier):
    await put_on_tier(audit, tier)
    floor = START - timedelta(days=DAYS[tier])

    page = await audit.page()

    assert page["retention_floor"] == f"{floor:%Y-%m-%dT%H:%M:%S.%f}Z"


async def test_enterprise_has_no_floor(audit):
    await put_on_tier(audit, "enterprise")
    await audit.accept([sample_row(START - timedelta(days=4000))])

    page = await audit.page(event=EVENT)

    assert page["retention_floor"] is None
    await assert_is_there(audit, page["entries"][0]["id"], is_there=True)


@sample(3)
@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("tier", DAYS)
@pytest.mark.parametrize(
    ("past_the_floor", "is_there"), [(-STEP, True), (timedelta(0), True), (STEP, False)]
)
async def test_a_row_is_there_until_the_floor_has_passed_it(
    audit, tier, is_sealed, past_the_floor, is_there
):
    """Page, row, summary, export and command agree to the microsecond; what is older is not there.

    A pruning run changes nothing about it: it takes no row that is still visible.
    """
    await put_on_tier(audit, tier)
    await audit.accept([sample_row(START)])
    if is_sealed:
        await audit.seal()
    audit_id = (await audit.page(event=EVENT))["entries"][0]["id"]
    audit.clock.now = START + timedelta(days=DAYS[tier]) + past_the_floor

    await assert_is_there(audit, audit_id, is_there=is_there)
    await audit.services.pruner.prune(BY_OPERATOR, is_clock_accepted=True)
    await assert_is_there(audit, audit_id, is_there=is_there)


async def assert_is_there(audit, audit_id: str, *, is_there: bool) -> None:
    """The one install is found at every way out, or at none."""
    page = await audit.page(event=EVENT)
    entry = await audit.get(f"/{audit_id}")
    summary = await (await audit.get("/summary", event=EVENT)).get_json()
    export = await audit.export(format="json", event=EVENT)
    operator = cli_caller("org_platform")
    async with Client.of_data_dir(audit.services, operator) as client:
        said = await client.get(org_path("acme", "audit"), {"event": [EVENT]})

    assert len(page["entries"]) == is_there
    assert summary["total"] == is_there
    assert len(said["entries"]) == is_there
    assert export.headers["x-row-count"] == str(int(is_there))
    assert len(await export.get_json()) == is_there
    if is_there:
        assert (await entry.get_json())["id"] == audit_id
    else:
        assert await refused(entry) == (404, "Audit row not found for this org")


async def test_asking_for_older_rows_does_not_bring_them_back(audit):
    await put_on_tier(audit, "free")
    await audit.accept([sample_row(START - timedelta(days=8)), sample_row(START)])

    page = await audit.page(event=EVENT, since="2020-01-01", order="asc")

    assert [entry["created_at"] for entry in page["entries"]] == ["2026-03-04T12:00:00.123456Z"]


async def test_a_tier_change_counts_from_the_next_request_on(audit):
    """Applied when asked, not when stored: an upgrade shows again what is still kept."""
    await put_on_tier(audit, "free")
    await audit.accept([sample_row(START - timedelta(days=8))])
    assert (await audit.page(event=EVENT))["entries"] == []

    await put_on_tier(audit, "org")

    assert len((await audit.page(event=EVENT))["entries"]) == 1


async def test_a_page_continues_while_the_floor_moves_on(audit):
    await put_on_tier(audit, "free")
    await audit.accept([sample_row(START - timedelta(seconds=n)) for n in range(10)])
    first = await audit.page(event=EVENT, limit=4)
    audit.clock.now = START + timedelta(days=7) - timedelta(seconds=5)

    rest = await audit.pages(event=EVENT, cursor=first["next_cursor"])

    assert len(first["entries"]) == 4
    assert len(rest) == 2
