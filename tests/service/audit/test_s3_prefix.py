"""A prefix of a bucket belongs to one installation: another writes and removes nothing there."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from analytics.model.errors import StoreUnreachable
from analytics.storage.object_client import FAIL_FAST_S
from analytics.storage.objects import Objects
from analytics.storage.prefix_owner import OWNER, PrefixOwner, PrefixTaken
from analytics.storage.segment_store import ObjectDamaged
from service.app.bootstrap import prepare
from service.audit.installation import (
    PREFIX_OF_ANOTHER,
    installation_id,
    renew_installation,
    take_over,
)
from service.audit.open_table.places import FormatName, TableKey
from service.audit.upload import upload_segments
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, running_world, settings_over
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.operations import CONTENT
from tests.service.audit.test_import import take
from tests.service.audit.test_s3 import live, new_node

GRACE_S = 3600.0


@pytest.fixture
def settings(tmp_path, bucket):
    return bucket.settings(settings_over(tmp_path / "first"), orphan_grace_s=GRACE_S)


@asynccontextmanager
async def another_installation(tmp_path, bucket, clock):
    """With a database of its own, and by mistake the prefix of the first."""
    elsewhere = settings_over(tmp_path / "second")
    async with running_world(elsewhere, clock, has_sealer=False) as world:
        async with world.services.store.write() as work:
            await renew_installation(work.session)
        settings = bucket.settings(world.services.settings, orphan_grace_s=GRACE_S)
        async with new_node(
            AuditWorld(replace(world, services=replace(world.services, settings=settings))),
            tmp_path / "second-node",
        ) as node:
            yield node


@pytest.fixture
async def other(audit, tmp_path, bucket, clock):
    """The first one has sealed a few rows there; all objects look older than the grace."""
    await audit.accept([sample_row(START)])
    await audit.seal()
    async with another_installation(tmp_path, bucket, clock) as node:
        yield node


@pytest.fixture
def old_objects(monkeypatch):
    """The clock of the store is past the grace of all objects."""
    now_s = Objects.now_s
    monkeypatch.setattr(Objects, "now_s", lambda objects: now_s(objects) + GRACE_S + 60)


@pytest.mark.usefixtures("old_objects")
async def test_another_installation_removes_nothing(audit, other, bucket):
    """All segments of the first are orphans by the catalog of the second."""
    keys = bucket.list_keys()

    lake, now_s = other.services.lake, other.clock().timestamp()
    with pytest.raises(PrefixTaken, match="belongs to another installation"):
        await other.services.garbage_collector.clear_orphans()
    with pytest.raises(PrefixTaken):
        await lake.remove_orphans(await lake.list_files(), set(), now_s, GRACE_S)
    with pytest.raises(PrefixTaken):
        await lake.remove_segments(await live(audit))
    with pytest.raises(PrefixTaken):
        await lake.claimed_segments(GRACE_S)
    with pytest.raises(PrefixTaken):
        await lake.clock_s(other.clock())

    assert bucket.list_keys() == keys


async def test_another_installation_writes_nothing_and_keeps_its_rows(other, bucket):
    """What it stored there would be removed as orphans of the first."""
    keys = bucket.list_keys()
    await other.accept([sample_row(START, package_name="of the second")])

    with pytest.raises(PrefixTaken):
        await other.seal()
    with pytest.raises(PrefixTaken):
        await take(other, CONTENT)
    with pytest.raises(PrefixTaken):
        await upload_segments(other.services.store, other.services.lake, lambda *_: None)

    assert bucket.list_keys() == keys
    assert [row["event"] for row in await other.pages(package="of the second")] == [
        sample_row(START).event
    ]


@pytest.mark.parametrize("format_name", ["delta", pytest.param("iceberg", marks=only_full)])
async def test_another_installation_publishes_no_table_there(other, bucket, format_name):
    """Its log would lie beside the segments of the first."""
    keys = {entry.key for entry in bucket.objects().entries()}

    with pytest.raises(PrefixTaken):
        await other.services.publisher.publish([format_name])
    with pytest.raises(PrefixTaken):
        await other.services.publisher.drop([TableKey(FormatName(format_name))])

    assert {entry.key for entry in bucket.objects().entries()} == keys


async def test_another_installation_does_not_start(other, audit, bucket, clock):
    content = bucket.content(OWNER)
    assert content.decode() == await installation_id(audit.services.store)

    with pytest.raises(PREFIX_OF_ANOTHER) as refused:
        await prepare(other.services.settings, clock)

    text = str(refused.value)
    assert bucket.url in text
    assert "set COUNTERSIGN_SEGMENTS_URL to a prefix of its own" in text
    assert "countersign audit take-over" in text
    assert bucket.content(OWNER) == content


async def test_all_nodes_over_one_database_are_one_installation(audit, tmp_path, bucket, clock):
    await audit.accept([sample_row(START)])
    async with new_node(audit, tmp_path / "node") as node:
        await prepare(node.services.settings, clock)
        assert await node.seal() == 2
        assert await node.services.garbage_collector.clear_orphans() == 0
    assert bucket.content(OWNER).decode() == await installation_id(audit.services.store)


async def test_a_prefix_from_before_is_adopted_by_the_installation_that_has_segments_there(
    audit, other, bucket, clock
):
    bucket.objects().delete([OWNER])

    with pytest.raises(PREFIX_OF_ANOTHER, match="not in this catalog"):
        await prepare(other.services.settings, clock)
    assert bucket.objects().find(OWNER) is None

    await prepare(audit.services.settings, clock)
    assert bucket.content(OWNER).decode() == await installation_id(audit.services.store)


async def test_of_two_that_start_in_an_empty_prefix_one_has_it(bucket):
    """The write is conditional: what was there between look and write stays."""
    first, second = (f"inst_{letter * 16}" for letter in "ab")
    owner = PrefixOwner(bucket.objects())
    assert not owner.is_owner(first)
    assert not owner.is_owner(second)

    owner.adopt(second, ())
    with pytest.raises(PrefixTaken, match=second):
        owner.adopt(first, ())

    assert owner.is_owner(second)


async def test_taking_over_ends_the_work_of_the_former_installation(audit, other, bucket, clock):
    before = await installation_id(other.services.store)
    await take_over(other.services.settings, other.services.store)

    assert await installation_id(other.services.store) != before
    await prepare(other.services.settings, clock)
    await other.services.garbage_collector.clear_orphans()
    with pytest.raises(PrefixTaken):
        await audit.services.garbage_collector.clear_orphans()
    await audit.accept([sample_row(START)])
    with pytest.raises(PrefixTaken):  # though it had the prefix a moment ago
        await audit.seal()
    with pytest.raises(PREFIX_OF_ANOTHER):
        await prepare(audit.services.settings, clock)


@pytest.mark.parametrize("content", [b"", b"<html>sign in</html>", b"inst_0", b"x" * 1000])
async def test_an_owner_that_cannot_be_read_is_no_one_s(bucket, content):
    """What a proxy answers is not taken for a free prefix."""
    bucket.write(OWNER, content)

    with pytest.raises(ObjectDamaged):
        PrefixOwner(bucket.objects()).is_owner("inst_" + "a" * 16)


@only_full
async def test_a_service_starts_without_its_bucket_and_asks_before_it_writes(other, bucket, clock):
    """Rows are accepted; whose prefix it is comes before the first object."""
    bucket.server.kill()
    await prepare(other.services.settings, clock)
    await other.accept([sample_row(START)])
    with pytest.raises(StoreUnreachable):
        await other.seal()

    bucket.server.start()
    await asyncio.sleep(FAIL_FAST_S)
    with pytest.raises(PrefixTaken):
        await other.seal()
