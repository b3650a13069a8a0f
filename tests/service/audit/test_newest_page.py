"""The newest page: answered without a thread once it was read, and by the same bytes."""

from datetime import timedelta

import pytest

from analytics.cache.row_groups import Decoded
from analytics.export.wire import json_objects
from analytics.query.newest_texts import NewestTexts
from service.audit.lake_queries import LakeQueries
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.test_retention_everywhere import put_on_tier


@pytest.fixture
def jobs(monkeypatch) -> list[str]:
    """The tenants of queries that a thread was asked for."""
    begun: list[str] = []
    query = LakeQueries.run

    async def counted(lake, *arguments, **options):
        begun.append(options["tenant_id"])
        return await query(lake, *arguments, **options)

    monkeypatch.setattr(LakeQueries, "run", counted)
    return begun


async def fill(audit, rows: int, ago: timedelta = timedelta()) -> None:
    await audit.accept([sample_row(START - ago - timedelta(seconds=n)) for n in range(rows)])


async def scanned(audit, **query: str) -> bytes:
    """The page as a scan answers it."""
    lake, kept = audit.services.lake, audit.services.lake.queries.newest
    lake.queries.newest = NewestTexts(Decoded(lake.segments, 0), json_objects, 0)
    body = await (await audit.get(**query)).get_data()
    lake.queries.newest = kept
    return body


async def test_a_page_that_is_known_asks_no_thread_and_says_the_same(audit, jobs):
    """Nor do the next pages, as far as rows are known, and rows that came since, sealed or not."""
    await fill(audit, 60)
    await audit.page(limit="40")
    await fill(audit, 5, timedelta(seconds=7))
    for _ in range(2):
        query = {"limit": "15"}
        for _ in range(2):
            jobs.clear()
            body = await (await audit.get(**query)).get_data()
            assert jobs == []
            assert body == await scanned(audit, **query)
            query["cursor"] = (await audit.page(**query))["next_cursor"]
        await audit.seal()


async def test_rows_of_another_organisation_are_not_shown(audit, jobs):
    await fill(audit, 3)
    own, other = audit.world.acme.id, audit.world.other.id
    for _ in range(2):
        entries = (await audit.page())["entries"]
        assert {entry["tenant_id"] for entry in entries} == {own}
        response = await audit.get(slug=audit.world.other.slug)
        assert {entry["tenant_id"] for entry in (await response.get_json())["entries"]} <= {other}
    assert sorted(jobs) == sorted([own, other])


async def test_kept_rows_pass_the_retention_floor_with_time(audit, jobs):
    await put_on_tier(audit, "free")
    await fill(audit, 4)
    assert len((await audit.page())["entries"]) >= 4
    audit.clock.now = START + timedelta(days=7) - timedelta(seconds=1)
    jobs.clear()

    body = await (await audit.get()).get_data()

    assert jobs == []
    assert body == await scanned(audit)
    assert body.count(b"blocklist_hit") == 2
