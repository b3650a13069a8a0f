"""What operators do with segments in a bucket: check, upload, back up, restore."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from analytics.storage.cache_folder import COPY_MODE
from analytics.storage.integrity import Kind
from service.audit.integrity_check import Check
from service.audit.upload import NoBucket, upload_segments
from service.backup.create import take_backup
from service.backup.refusals import ObjectDiffers
from service.backup.restore import restore_backup
from service.composition import build_services
from service.settings import Settings
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START, running_world, settings_over
from tests.service.audit.conftest import AuditWorld
from tests.service.audit.test_s3 import filled, live, new_node, settings

__all__ = ["filled", "settings"]  # fixtures


def ignore(*_: object) -> None:
    """For those that tell how far they are."""


async def check(audit, *, is_quick: bool) -> list[tuple[Kind, str | None]]:
    services = audit.services
    report = await Check(services.store, services.lake, None, ignore, is_quick=is_quick).run()
    return [(finding.kind, finding.segment) for finding in [*report.findings, *report.notes]]


@pytest.mark.parametrize("is_quick", [True, pytest.param(False, marks=only_full)])
async def test_a_check_looks_at_objects_and_not_at_copies_of_them(filled, bucket, is_quick):
    """Each fault is found while every copy on this machine is whole."""
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
        (Kind.MISSING_FILE, missing.segment_id),
        (Kind.WRONG_SIZE, cut.segment_id),
        (Kind.ORPHAN_FILE, missing.segment_id.replace("seg_", "seg_0")),
        (Kind.FOREIGN_FILE, "notes"),
    }
    by_content = set() if is_quick else {(Kind.WRONG_SHA256, changed.segment_id)}
    assert by_size | by_content <= set(found)
    assert is_quick == ((Kind.WRONG_SHA256, changed.segment_id) not in found)


async def test_a_data_dir_that_had_a_folder_is_uploaded(tmp_path, bucket, clock):
    """Until then this node reads its files, and drops none of them however small the cache."""
    local = settings_over(tmp_path)
    async with running_world(local, clock, has_sealer=False) as world:
        audit = AuditWorld(world)
        await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(4)])
        await audit.seal()
        with pytest.raises(NoBucket):
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


async def restore(settings: Settings, backup: Path) -> None:
    """As the command does, which has no event loop."""
    await asyncio.to_thread(restore_backup, settings, backup, ignore, is_forced=False)


async def test_a_backup_of_objects_is_restored_to_another_prefix(filled, bucket, tmp_path, clock):
    """The backup is a folder as always, whole without the bucket."""
    target = tmp_path / "backup"
    async with new_node(filled, tmp_path / "node") as node:
        # It takes what it has not read yet; the database is that of the data dir.
        manifest = await take_backup(
            filled.services, target, ignore, is_linked=False, has_secrets=False
        )
        pages = await node.pages()
    assert not manifest.missing_segments
    elsewhere = msgspec.structs.replace(
        filled.services.settings,
        data_dir=tmp_path / "restored",
        database_url="",
        segments_url=bucket.url + "/restored",
    )

    await restore(elsewhere, target)
    restored = build_services(elsewhere, clock)
    try:
        async with new_node(
            AuditWorld(replace(filled.world, services=restored)), tmp_path / "third"
        ) as node:
            assert await node.pages() == pages
    finally:
        await restored.close()

    again = msgspec.structs.replace(elsewhere, data_dir=tmp_path / "again")
    await restore(again, target)  # the same objects are there
    segment = (await live(filled))[0]
    root = filled.services.settings.audit_dir
    bucket.write("restored/" + segment.path(root).relative_to(root).as_posix(), b"other")
    third = msgspec.structs.replace(elsewhere, data_dir=tmp_path / "no")
    with pytest.raises(ObjectDiffers):
        await restore(third, target)
    assert not third.data_dir.exists()


async def test_no_error_or_output_carries_a_credential(
    filled, bucket, monkeypatch, tmp_path, capsys
):
    """Also where the store refuses them."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-that-is-wrong")
    async with new_node(filled, tmp_path / "node") as node:
        response = await node.get()
        assert response.status_code == 503
        body = await response.get_data(as_text=True)

    out = body + "".join(capsys.readouterr())
    assert "SignatureDoesNotMatch" in out
    for secret in ("a-secret-that-is-wrong", bucket.server.environment["AWS_ACCESS_KEY_ID"]):
        assert secret not in out
