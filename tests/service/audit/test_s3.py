"""Segments in a bucket: what the service answers when objects, nodes and the store come and go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.object_client import FAIL_FAST_S
from analytics.storage.segment_metadata import Segment
from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION
from service.store.catalog import delete_segments, list_live_segments, retire_segments
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import SCRAPER, START, running_world, settings_over
from tests.service.audit.conftest import AuditWorld
from tests.store_proxy import slow_store

DAYS = 5
SEGMENTS = DAYS + 1
"""One of each day, and one of the rows that founding another organisation left."""


@pytest.fixture
def settings(tmp_path, bucket):
    return bucket.settings(settings_over(tmp_path))


@pytest.fixture
async def filled(audit):
    """A few rows on each of several days, sealed."""
    for day in range(DAYS):
        rows = [sample_row(START - timedelta(days=day), package_name=f"p{n}") for n in range(4)]
        await audit.accept(rows)
    assert await audit.seal() == SEGMENTS
    return audit


async def live(audit) -> list[Segment]:
    async with audit.services.store.read() as session:
        return await list_live_segments(session)


@asynccontextmanager
async def new_node(audit: AuditWorld, folder: Path, **changes: object) -> AsyncIterator[AuditWorld]:
    """Another node of the service, over the same database and bucket, with an empty disk."""
    own = audit.services.settings
    node = msgspec.structs.replace(own, data_dir=folder, database_url=own.database, **changes)
    for path in (node.audit_dir, node.temp_dir):
        path.mkdir(parents=True)
    app = create_app(node, audit.clock, jobs=seal_jobs)
    services = app.extensions[EXTENSION]
    try:
        world = replace(audit.world, app=app, client=app.test_client(), services=services)
        yield AuditWorld(world)
    finally:
        await services.close()


@pytest.fixture
async def node(filled, tmp_path):
    async with new_node(filled, tmp_path / "node") as started:
        yield started


async def test_a_seal_stores_each_file_and_its_index_as_objects(filled, bucket):
    root = filled.services.settings.audit_dir
    named = {
        path.relative_to(root).as_posix()
        for segment in await live(filled)
        for path in (segment.path(root), segment.index_path(root))
    }

    assert bucket.list_keys() == named
    assert len(named) == 2 * SEGMENTS


async def test_a_node_with_an_empty_disk_answers_as_the_one_that_wrote(filled, node):
    for query in ({"limit": 3}, {"limit": 3, "package": "p2"}, {"order": "asc"}):
        assert await node.pages(**query) == await filled.pages(**query)

    # Without the rows that say who has exported what.
    asked = {"format": "ndjson", "event": "blocklist_hit"}
    exported = await (await node.export(**asked)).get_data()
    assert exported == await (await filled.export(**asked)).get_data()
    assert exported.count(b"\n") == 4 * DAYS

    shown = await (await node.world.client.get("/metrics", headers=SCRAPER)).get_data(as_text=True)
    assert 'countersign_segment_cache_files_total{result="miss"}' in shown
    assert 'countersign_segment_cache_files_total{result="miss"} 0.0' not in shown


async def in_sql(node, sql):
    path = "/api/v1/admin/orgs/acme/audit/sql"
    return await node.world.client.post(path, headers=node.world.admin, json={"sql": sql})


async def test_a_statement_reads_the_segments_of_the_bucket_and_the_journal(filled, node):
    await filled.accept([sample_row(START, package_name="p1")])

    counts = "SELECT packageName, count(*) FROM audit WHERE event = 'blocklist_hit' GROUP BY 1"
    answer = await in_sql(node, f"{counts} ORDER BY 1")

    assert answer.status_code == 200
    assert (await answer.get_json())["rows"] == [["p0", 5], ["p1", 6], ["p2", 5], ["p3", 5]]


async def test_a_statement_fetches_no_more_after_its_time(filled, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr("service.audit.sql_runs._FETCHED_TOGETHER", 1)
    with slow_store(bucket.server.endpoint, 0.5) as store:
        changes = {"segments_endpoint": store.endpoint, "sql_max_s": 1.0}
        async with new_node(filled, tmp_path / "slow", **changes) as node:
            answer = await in_sql(node, "SELECT count(*) FROM audit")

    assert answer.status_code == 503
    assert "was stopped" in (await answer.get_json())["error"]
    assert len([path for path in store.gets if path.endswith(".parquet")]) < DAYS


@pytest.mark.parametrize("fault", ["missing", "truncated", "changed"])
async def test_a_faulty_object_is_a_503_and_never_an_empty_page(node, bucket, fault):
    """The catalog says what must be there, to the byte."""
    for key in [key for key in bucket.list_keys() if key.endswith(".parquet")]:
        content = bucket.content(key)
        if fault == "missing":
            bucket.objects().delete([key])
        elif fault == "truncated":
            bucket.write(key, content[:-100])
        else:
            bucket.write(key, content[:200] + bytes([content[200] ^ 1]) + content[201:])

    queries = ({}, {"package": "p1"}, {"event": "blocklist_hit", "order": "asc"})
    responses = [await node.get(**query) for query in queries]
    for response in [*responses, await in_sql(node, "SELECT count(*) FROM audit")]:
        assert response.status_code == 503
        assert (await response.get_json())["error"].startswith("stored data is missing or damaged")
    if fault == "changed":
        # Known once it is read: what was begun is broken off.
        with pytest.raises(StoreFault, match="SHA-256"):
            await node.export(format="csv")
    else:
        assert (await node.export(format="csv")).status_code == 503


async def test_a_missing_index_costs_time_and_no_row_and_is_built_again(filled, node, bucket):
    """An index is derived: rows are read instead."""
    tenant = f"tenant={filled.world.acme.id}/"
    own = {key for key in bucket.list_keys() if key.startswith(tenant)}
    indexes = sorted(key for key in own if key.endswith(".index"))
    contents = {key: bucket.content(key) for key in indexes}
    bucket.objects().delete(indexes)

    assert await node.pages(package="p1") == await filled.pages(package="p1")
    while await node.services.indexer.build_missing():
        pass

    assert {key: bucket.content(key) for key in indexes} == contents


@only_full
async def test_without_the_store_queries_answer_503_and_recover_by_themselves(filled, node, bucket):
    pages = await filled.pages()
    bucket.server.kill()

    assert await filled.pages() == pages
    response = await node.get()
    assert response.status_code == 503
    assert (await response.get_json())["error"] == "storage is unavailable"
    await node.accept([sample_row(START)])
    with pytest.raises(StoreUnreachable, match="not reachable"):
        await node.seal()

    bucket.server.start()
    await asyncio.sleep(FAIL_FAST_S)
    assert len(await node.pages()) == len(pages) + 1
    assert await node.seal() == 1


async def test_a_merge_and_its_sweep_leave_one_object_a_day(filled, bucket):
    await filled.accept([sample_row(START - timedelta(days=2), package_name="late")])
    await filled.seal()
    before = await filled.pages(limit=100)
    collector = filled.services.garbage_collector

    assert len(await filled.services.compactor.compact_due(everything=True)) == 1
    filled.clock.advance(seconds=filled.services.settings.retired_grace_s + 1)
    assert await collector.unlink_retired() == 2

    assert len(bucket.list_keys()) == 2 * SEGMENTS
    assert await filled.pages(limit=100) == before
    assert await collector.drop_copies() == 0


async def test_copies_of_segments_that_another_node_removed_are_dropped(filled):
    """Rows past their retention do not stay on the disks of nodes that once read them."""
    services = filled.services
    first, *others = await live(filled)
    async with services.store.write() as work:
        await retire_segments(work.session, [first], work.now)
        await delete_segments(work.session, [first])
    root = services.settings.audit_dir

    assert await services.garbage_collector.drop_copies() == 2

    assert not first.path(root).exists()
    assert all(segment.path(root).exists() for segment in others)


@only_full
async def test_a_full_world_runs_on_a_bucket(settings, clock):
    async with running_world(settings, clock) as world:
        assert await world.audit() != []
