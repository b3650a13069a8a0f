"""What operators do with segments in a bucket: check, upload, back up, restore."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from analytics.storage.integrity import FaultKind
from analytics.storage.prefix_owner import PrefixTaken
from analytics.storage.verified_files import COPY_MODE
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.audit.backup.create import take_backup
from service.audit.backup.refusals import PREFIX_IN_USE, ObjectDiffers
from service.audit.backup.restore import restore_backup
from service.audit.installation import PREFIX_OF_ANOTHER
from service.audit.integrity_check import Check
from service.audit.upload import NO_BUCKET, upload_segments
from service.core.settings import Settings
from service.store.catalog import list_live_segments
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, running_world, settings_over
from tests.databases import elsewhere
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.test_s3 import SEGMENTS, filled, live, new_node, settings

__all__ = ["filled", "settings"]  # fixtures


def ignore(*_: object) -> None:
    """For those that tell how far they are."""


async def check(audit, *, is_quick: bool) -> list[tuple[FaultKind, str | None]]:
    services = audit.services
    report = await Check(services.store, services.lake, None, ignore, is_quick=is_quick).run()
    return [(finding.kind, finding.segment) for finding in [*report.findings, *report.notes]]


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=only_full)])
async def test_a_check_looks_at_objects_and_not_at_copies_of_them(filled, bucket, is_quick):
    assert await check(filled, is_quick=is_quick) == []
    root = filled.services.settings.audit_dir
    missing, cut, changed, *_ = await live(filled)
    keys = [one.path(root).relative_to(root).as_posix() for one in (missing, cut, changed)]
    content = bucket.content(keys[2])
    bucket.objects().delete(keys[:1])
    bucket.write(keys[1], bucket.content(keys[1])[:-1])
    bucket.write(keys[2], content[:200] + bytes([content[200] ^ 1]) + content[201:])
    bucket.write(keys[0].replace("/seg_", "/seg_0"), b"left behind")
    bucket.write("notes.txt", b"of someone else")

    found = await check(filled, is_quick=is_quick)

    by_size = {
        (FaultKind.MISSING_FILE, missing.segment_id),
        (FaultKind.WRONG_SIZE, cut.segment_id),
        (FaultKind.ORPHAN_FILE, missing.segment_id.replace("seg_", "seg_0")),
        (FaultKind.FOREIGN_FILE, "notes"),
    }
    by_content = set() if is_quick else {(FaultKind.WRONG_SHA256, changed.segment_id)}
    assert by_size | by_content <= set(found)
    assert is_quick == ((FaultKind.WRONG_SHA256, changed.segment_id) not in found)


async def test_a_data_dir_that_had_a_folder_is_uploaded(tmp_path, bucket, clock):
    """Until then this node reads its files, and drops none of them however small the cache."""
    local = settings_over(tmp_path)
    async with running_world(local, clock, has_sealer=False) as world:
        audit = AuditWorld(world)
        await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(4)])
        await audit.seal()
        with pytest.raises(NO_BUCKET):
            await upload_segments(audit.services.store, audit.services.lake, ignore)
        services = build_services(bucket.settings(audit.services.settings), clock)
        services.lake.segments._cache.bytes_max = 1
        try:
            moved = AuditWorld(replace(world, services=services))
            segments = await live(moved)
            async with new_node(moved, tmp_path / "before") as node:
                assert (await node.get()).status_code == 503
            assert await upload_segments(services.store, services.lake, ignore) == (
                len(segments),
                [],
            )
            assert await upload_segments(services.store, services.lake, ignore) == (0, [])
            async with new_node(moved, tmp_path / "after") as node:
                assert await node.pages() == await audit.pages()
            root = local.audit_dir
            assert {one.path(root).stat().st_mode & 0o777 for one in segments} == {COPY_MODE}
        finally:
            await services.close()


@pytest.fixture
async def moved(filled, bucket, tmp_path, clock):
    """The data dir of one bucket, with its copies, and another bucket by its settings."""
    await filled.services.close()
    elsewhere = replace(bucket, url=bucket.url + "-moved")
    settings = elsewhere.settings(filled.services.settings)
    services = build_services(settings, clock)
    yield elsewhere, services
    await services.close()


async def test_copies_of_another_bucket_are_uploaded(filled, moved, bucket):
    """Their mode says that they are copies, and not of which bucket."""
    elsewhere, services = moved
    uploads = services.store, services.lake, ignore
    used = services.lake.segments._cache.used_bytes()

    assert await upload_segments(*uploads) == (SEGMENTS, [])

    assert elsewhere.list_keys() == bucket.list_keys()
    assert services.lake.segments._cache.used_bytes() == used
    assert await upload_segments(*uploads) == (0, [])


async def test_an_upload_compares_what_the_bucket_has_with_the_catalog(filled, moved, bucket):
    """Of another size, or of other bytes beside a file that is no copy; and it stays there."""
    elsewhere, services = moved
    uploads = services.store, services.lake, ignore
    root = services.settings.audit_dir
    async with services.store.read() as session:
        cut, changed, *_ = await list_live_segments(session)
    await upload_segments(*uploads)
    keys = [segment.path(root).relative_to(root).as_posix() for segment in (cut, changed)]
    content = elsewhere.content(keys[1])
    elsewhere.write(keys[0], elsewhere.content(keys[0])[:-1])
    elsewhere.write(keys[1], content[:200] + bytes([content[200] ^ 1]) + content[201:])
    changed.path(root).chmod(0o600)

    uploaded, failed = await upload_segments(*uploads)

    assert uploaded == 0
    assert len(failed) == 2
    assert "bytes instead of" in failed[0]
    assert "another object has this name" in failed[1]


async def restore(settings: Settings, backup: Path, *, is_taken_over: bool = False) -> None:
    """As the command does, which has no event loop."""
    await asyncio.to_thread(
        restore_backup, settings, backup, ignore, is_forced=False, is_taken_over=is_taken_over
    )


async def test_a_backup_of_objects_is_restored_to_another_prefix(filled, bucket, tmp_path, clock):
    target = tmp_path / "backup"
    async with new_node(filled, tmp_path / "node") as node:
        # It takes what it has not read yet; the database is that of the data dir.
        manifest = await take_backup(
            filled.services, target, ignore, is_linked=False, has_secrets=False
        )
        pages = await node.pages()
    assert not manifest.missing_segments
    settings = msgspec.structs.replace(
        filled.services.settings, segments_url=bucket.url + "/restored"
    )
    first = elsewhere(settings, tmp_path / "restored")

    await restore(first, target)
    restored = build_services(first, clock)
    try:
        async with new_node(
            AuditWorld(replace(filled.world, services=restored)), tmp_path / "third"
        ) as node:
            assert await node.pages() == pages
    finally:
        await restored.close()

    again = elsewhere(settings, tmp_path / "again")
    with pytest.raises(PREFIX_IN_USE, match="belongs to another installation"):
        await restore(again, target)
    assert not again.data_dir.exists()
    await restore(again, target, is_taken_over=True)  # the same objects are there
    segment = (await live(filled))[0]
    root = filled.services.settings.audit_dir
    bucket.write("restored/" + segment.path(root).relative_to(root).as_posix(), b"other")
    third = elsewhere(settings, tmp_path / "no")
    with pytest.raises(ObjectDiffers):
        await restore(third, target, is_taken_over=True)
    assert not third.data_dir.exists()


@pytest.mark.sqlite_only(reason="restores to another data dir; see test_postgresql.py")
async def test_a_restored_installation_is_not_the_one_that_was_backed_up(
    filled, bucket, tmp_path, clock
):
    """Pointed to the prefix of the first by mistake, it would remove what came after the backup."""
    target = tmp_path / "backup"
    await take_backup(filled.services, target, ignore, is_linked=False, has_secrets=False)
    own = filled.services.settings
    restored = msgspec.structs.replace(own, data_dir=tmp_path / "restored", database_url="")
    await filled.services.lake.confirm_prefix()

    with pytest.raises(PREFIX_IN_USE):
        await restore(restored, target)
    elsewhere = msgspec.structs.replace(restored, segments_url=bucket.url + "/restored")
    await restore(elsewhere, target)
    with pytest.raises(PREFIX_OF_ANOTHER):
        await prepare(restored, clock)

    await prepare(own, clock)
    await prepare(elsewhere, clock)


@pytest.mark.sqlite_only(reason="restores to another data dir; see test_postgresql.py")
async def test_a_restore_that_takes_over_ends_the_former_installation(
    filled, bucket, tmp_path, clock
):
    target = tmp_path / "backup"
    await take_backup(filled.services, target, ignore, is_linked=False, has_secrets=False)
    own = filled.services.settings
    restored = msgspec.structs.replace(own, data_dir=tmp_path / "restored", database_url="")

    await restore(restored, target, is_taken_over=True)

    await prepare(restored, clock)
    with pytest.raises(PrefixTaken):
        await filled.services.garbage_collector.clear_orphans()


@pytest.mark.sqlite_only(reason="restores to another data dir; see test_postgresql.py")
@pytest.mark.parametrize("step", ["_copy", "sync_folders"], ids=["before", "after the upload"])
async def test_a_restore_that_failed_is_repeated_and_takes_nothing_over(
    filled, bucket, tmp_path, monkeypatch, step
):
    """The prefix is kept for it, or is as empty as before."""
    target = tmp_path / "backup"
    await take_backup(filled.services, target, ignore, is_linked=False, has_secrets=False)
    restored = msgspec.structs.replace(
        filled.services.settings,
        data_dir=tmp_path / "restored",
        database_url="",
        segments_url=bucket.url + "/restored",
    )
    with monkeypatch.context() as patch:
        patch.setattr(f"service.audit.backup.restore.{step}", raise_os_error)
        with pytest.raises(OSError, match="as expected"):
            await restore(restored, target)
    assert not restored.data_dir.exists()

    await restore(restored, target)


@pytest.mark.sqlite_only(reason="restores to another data dir; see test_postgresql.py")
async def test_an_attempt_that_failed_early_leaves_the_prefix_to_the_next(
    filled, bucket, tmp_path, monkeypatch
):
    """The one before it was killed after its upload: its objects and its id are there."""
    target = tmp_path / "backup"
    await take_backup(filled.services, target, ignore, is_linked=False, has_secrets=False)
    settings = msgspec.structs.replace(
        filled.services.settings, segments_url=f"{bucket.url}/restored"
    )
    restored = elsewhere(settings, tmp_path / "restored")
    for step in ("sync_folders", "check_room"):
        with monkeypatch.context() as patch:
            patch.setattr(f"service.audit.backup.restore.{step}", raise_os_error)
            with pytest.raises(OSError, match="as expected"):
                await restore(restored, target)

    await restore(restored, target)
    await prepare(restored)

    assert not list(tmp_path.glob(".restored.*"))


@pytest.mark.sqlite_only(reason="restores to another data dir; see test_postgresql.py")
async def test_a_second_restore_is_another_installation(filled, bucket, tmp_path, clock):
    """The data dir of the first may still be served: each would remove the other's objects."""
    target = tmp_path / "backup"
    await take_backup(filled.services, target, ignore, is_linked=False, has_secrets=False)
    settings = msgspec.structs.replace(
        filled.services.settings, segments_url=f"{bucket.url}/restored"
    )
    restored = elsewhere(settings, tmp_path / "restored")
    await restore(restored, target)
    restored.data_dir.rename(tmp_path / "former")
    with pytest.raises(PREFIX_IN_USE, match="belongs to another installation"):
        await restore(restored, target)

    await restore(restored, target, is_taken_over=True)
    await prepare(restored, clock)
    with pytest.raises(PREFIX_OF_ANOTHER):
        await prepare(elsewhere(settings, tmp_path / "former"), clock)


def raise_os_error(*_: object) -> None:
    raise OSError("as expected")
