"""An upload that is cut or killed: the next one completes it, and no row was ever missing."""

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from analytics.storage.verified_files import is_copy
from service.app.composition import build_services
from service.audit.upload import upload_segments
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START
from tests.crashes import PowerCut, kill_process, power_cut_after
from tests.service.audit.test_s3 import live, new_node

DAYS = 3
OBJECTS = 2 * (DAYS + 1)
"""Rows and an index of each day, and of the rows that founding another organisation left."""


@pytest.fixture
async def filled(audit):
    """A few rows on each of several days, sealed into a folder."""
    for day in range(DAYS):
        await audit.accept([sample_row(START - timedelta(days=day)) for _ in range(4)])
    await audit.seal()
    return audit


@asynccontextmanager
async def moving(filled, bucket):
    """The service with the bucket in its settings."""
    services = build_services(bucket.settings(filled.services.settings), filled.clock)
    try:
        yield replace(filled, world=replace(filled.world, services=services))
    finally:
        await services.close()


async def upload(world) -> list[str]:
    """The faults of an upload."""
    services = world.services
    return (await upload_segments(services.store, services.lake, lambda *_: None))[1]


async def assert_it_is_completed(filled, bucket, tmp_path, before: list[dict]) -> None:
    """What may be dropped has an object at any time; after the next upload, all have one."""
    root = filled.services.settings.audit_dir
    for path in root.glob("tenant=*/day=*/*"):
        assert not is_copy(path.stat()) or path.relative_to(root).as_posix() in bucket.list_keys()
    async with moving(filled, bucket) as world:
        assert await upload(world) == []
        async with new_node(world, tmp_path / "node") as node:
            assert await node.pages() == before
    assert await filled.pages() == before
    keys = [key for key in bucket.list_keys() if key.startswith("tenant=")]
    assert sorted(keys) == sorted(
        path.relative_to(root).as_posix()
        for segment in await live(filled)
        for path in (segment.path(root), segment.index_path(root))
    )


@sample(3)
@pytest.mark.parametrize("steps", range(OBJECTS + 8))
async def test_an_upload_that_is_cut_at_any_step_is_completed(filled, bucket, tmp_path, steps):
    before = await filled.pages()
    async with moving(filled, bucket) as world:
        with suppress(PowerCut), power_cut_after(steps, world.services.store):
            await upload(world)

    await assert_it_is_completed(filled, bucket, tmp_path, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3, OBJECTS])
async def test_kill_9_of_an_upload_loses_and_doubles_nothing(filled, bucket, tmp_path, number):
    before = await filled.pages()
    settings = bucket.settings(filled.services.settings)

    await kill_process(settings, START, "upload", "put object", number)

    await assert_it_is_completed(filled, bucket, tmp_path, before)
