"""How much is fetched from a bucket, in how many rounds, and what stays of it on the disk."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
import pytest_asyncio

from analytics.model.filters import parse_query
from service.core.settings import Settings
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, SettableClock, running_world, settings_over
from tests.interpreters import start_module
from tests.seaweedfs import Bucket, SeaweedFS, bucket_of
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.test_s3 import new_node
from tests.store_proxy import slow_store

DAYS = 20
ROWS = 30
DELAY_S = 0.03

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def own_bucket(seaweedfs: SeaweedFS) -> Iterator[Bucket]:
    """One place for all tests of this module: they only read."""
    with pytest.MonkeyPatch.context() as patch:
        yield bucket_of(seaweedfs, patch)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(own_bucket, tmp_path_factory) -> AsyncIterator[AuditWorld]:
    """Rows on each of many days, sealed; one value is rare."""
    settings = own_bucket.settings(settings_over(tmp_path_factory.mktemp("filled")))
    async with running_world(settings, SettableClock(), has_sealer=False) as world:
        audit = AuditWorld(world)
        for day in range(DAYS):
            at = START - timedelta(days=day)
            rows = [sample_row(at, package_name=f"p{n}", payload=text(day, n)) for n in range(ROWS)]
            if day % 10 == 9:
                rows.append(sample_row(at, package_name="rare"))
            await audit.accept(rows)
        await audit.seal()
        yield audit


def text(day: int, number: int) -> str:
    return json.dumps({"rule_id": f"{hash((day, number)):x}", "source": "osv"})


@pytest_asyncio.fixture(loop_scope="module")
async def slow(filled, own_bucket, tmp_path):
    """A node with an empty disk, and the slow way to its bucket."""
    with slow_store(own_bucket.server.endpoint, DELAY_S) as store:
        async with new_node(filled, tmp_path / "node", segments_endpoint=store.endpoint) as node:
            yield node, store


async def test_the_first_page_fetches_a_few_days(slow):
    """The newest rows are in the newest segments."""
    node, store = slow

    assert len((await node.page(limit=50))["entries"]) == 50

    assert len(store.gets) <= 6
    assert store.rounds <= 4


async def test_a_search_for_a_rare_value_fetches_indexes_together_and_few_segments(slow):
    """The rows of three quarters of the days are not fetched at all."""
    node, store = slow

    rows = await node.pages(limit=50, package="rare")

    assert len(rows) == DAYS // 10
    segments = [path for path in store.gets if path.endswith(".parquet")]
    assert len(segments) == DAYS // 10
    assert store.rounds <= 6


async def test_a_page_over_all_days_fetches_many_at_a_time(slow):
    node, store = slow

    rows = await node.pages(limit=1000, event="blocklist_hit", order="asc")

    assert len(rows) == DAYS * ROWS + DAYS // 10
    assert DAYS <= len(store.gets) <= DAYS + 5
    assert store.rounds <= 10


@only_full
async def test_an_export_fetches_ahead(slow):
    node, store = slow

    exported = await (await node.export(format="ndjson", event="blocklist_hit")).get_data()

    assert exported.count(b"\n") == DAYS * ROWS + DAYS // 10
    assert len({path for path in store.gets if path.endswith(".parquet")}) == DAYS
    assert store.rounds <= DAYS // 2


async def test_a_stream_of_a_rare_value_fetches_indexes_together(slow):
    """They tell the days that it needs, before the first one is read."""
    node, store = slow
    snapshot = await node.services.store.snapshot(node.world.acme.id)
    query = parse_query({"package": ["rare"]})

    streamed = await node.services.lake.queries.run(
        lambda reader: list(reader.stream(snapshot, query))
    )

    assert sum(rows.num_rows for rows in streamed) == DAYS // 10
    segments = [path for path in store.gets if path.endswith(".parquet")]
    assert len(segments) == DAYS // 10
    assert store.rounds <= 6


async def test_a_count_needs_the_indexes_and_no_rows(slow):
    node, store = slow

    response = await node.get("/summary", package="rare", bucket="day")
    summary = await response.get_json()

    assert response.status_code == 200, summary
    assert summary["total"] == DAYS // 10
    assert store.rounds <= 6


def copies(settings: Settings) -> int:
    """The bytes of all copies on the disk."""
    files = settings.audit_dir.glob("tenant=*/day=*/*")
    return sum(path.stat().st_size for path in files)


async def test_an_export_larger_than_the_cache_is_whole(filled, tmp_path):
    """Days come and go; what is on the disk stays within the bound, but for what is in use."""
    bound = 36 * 1024
    async with new_node(filled, tmp_path / "node") as node:
        cache = node.services.lake.segments._cache
        cache.bytes_max = bound
        response = await node.export(format="ndjson", event="blocklist_hit")
        most = lines = 0
        async for piece in response.response:
            lines += piece.count(b"\n")
            most = max(most, copies(node.services.settings))
        assert lines == DAYS * ROWS + DAYS // 10
        asked = {"limit": 1000, "event": "blocklist_hit"}
        assert await filled.pages(**asked) == await node.pages(**asked)

    largest = max(path.stat().st_size for path in bound_files(filled))
    assert DAYS * largest > 3 * bound
    assert most <= bound + 2 * largest


def bound_files(audit):
    return audit.services.settings.audit_dir.glob("tenant=*/day=*/*.parquet")


@only_full
@pytest.mark.slow
async def test_two_processes_share_one_cache_that_is_too_small_for_both(filled, tmp_path):
    async with new_node(filled, tmp_path / "node") as node:
        settings = node.services.settings
        wanted = len(await filled.pages(limit=1000))
    orders = json.dumps(
        {
            "data_dir": str(settings.data_dir),
            "database": settings.database_url,
            "url": settings.segments_url,
            "endpoint": settings.segments_endpoint,
            "tenant": filled.world.acme.id,
            "bytes_max": 64 * 1024,
            "times": 6,
        }
    )
    processes = [start_module("tests.cache_reader", orders, stdout=-1, stderr=-1) for _ in range(2)]
    answers = [await asyncio.to_thread(process.communicate) for process in processes]

    assert [process.returncode for process in processes] == [0, 0], answers
    for out, _ in answers:
        assert json.loads(out) == [wanted] * 6
    assert copies(settings) <= 64 * 1024
