"""Restoring single segments: from each source, only what matches, and nothing lost by a crash."""

import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from analytics.storage.segment_metadata import Segment
from service.app.application import create_app
from service.app.background_jobs import seal_jobs
from service.app.composition import EXTENSION, build_services
from service.audit.backup.create import take_backup
from service.audit.backup.refusals import NOT_A_BACKUP, NOT_A_SOURCE, UNKNOWN_SEGMENT, BackupDamaged
from service.audit.backup.segment_restore import (
    Outcome,
    Result,
    SegmentRestore,
    choose_segments,
    open_sources,
)
from service.audit.upload import upload_segments
from service.core.errors import StorageFull
from service.store.catalog import list_live_segments, retire_segments
from service.store.lease import LeaseTaken
from service.store.verification import list_damaged
from tests.budgets import budget, sample
from tests.conftest import BY_OPERATOR, START, settings_over
from tests.crashes import PowerCut, full_disk, kill_process, power_cut_after
from tests.seaweedfs import versioned
from tests.service.audit.conftest import audit, worker
from tests.service.audit.test_s3 import filled, new_node

__all__ = ["audit", "filled", "worker"]  # fixtures

EVENT = "audit_segment_restored"


@pytest.fixture(params=["folder", "bucket"])
def settings(request, tmp_path):
    """Segments in a folder, and in a bucket."""
    if request.param == "folder":
        return settings_over(tmp_path / "own")
    return request.getfixturevalue("bucket").settings(settings_over(tmp_path / "own"))


def ignore(*_: object) -> None:
    """For those that tell how far they are."""


class Stored:
    """The files of segments where they are stored, and no copies of them on this machine."""

    def __init__(self, audit, bucket=None) -> None:
        self._root = audit.services.settings.audit_dir
        self._bucket = bucket

    def _path(self, segment: Segment) -> Path:
        return segment.path(self._root)

    def _key(self, segment: Segment) -> str:
        return segment.path(Path()).as_posix()

    def read(self, segment: Segment) -> bytes | None:
        if self._bucket:
            key = self._key(segment)
            return self._bucket.content(key) if key in self._bucket.list_keys() else None
        return self._path(segment).read_bytes() if self._path(segment).exists() else None

    def remove(self, segment: Segment) -> None:
        self._path(segment).unlink(missing_ok=True)
        if self._bucket:
            self._bucket.objects().delete([self._key(segment)])

    def flip(self, segment: Segment) -> None:
        content = self.read(segment)
        assert content is not None
        other = content[:200] + bytes([content[200] ^ 1]) + content[201:]
        self._path(segment).unlink(missing_ok=True)
        if self._bucket:
            self._bucket.write(self._key(segment), other)
        else:
            self._path(segment).write_bytes(other)


@pytest.fixture
def stored(filled, request):
    is_bucket = bool(filled.services.settings.segments_url)
    return Stored(filled, request.getfixturevalue("bucket") if is_bucket else None)


async def back_up(filled, target: Path, **options: bool) -> Path:
    await take_backup(
        filled.services, target, ignore, is_linked=False, has_secrets=False, **options
    )
    return target


@pytest.fixture
async def backup(filled, tmp_path) -> Path:
    return await back_up(filled, tmp_path / "backup")


async def restore(services, *sources: object, ids: tuple[str, ...] = ()) -> list[Outcome]:
    """Restore all that is damaged; the outcomes of these, or of `ids`."""
    chosen = await choose_segments(services, None, None, ids)
    opened = open_sources(services.settings, [str(source) for source in sources])
    work = SegmentRestore(services, opened, BY_OPERATOR)
    outcomes = [await work.restore(segment) for segment in chosen]
    return [each for each in outcomes if ids or each.result is not Result.WHOLE]


async def acmes(filled) -> list[Segment]:
    async with filled.services.store.read() as session:
        return await list_live_segments(session, filled.world.acme.id)


async def damaged(filled) -> list[str | None]:
    async with filled.services.store.read() as session:
        return [each.segment_id for each in await list_damaged(session)]


async def rows(filled) -> list[dict]:
    """Acme's rows but for those that tell of restores."""
    return [entry for entry in await filled.pages() if entry["event"] != EVENT]


async def test_a_damaged_and_a_missing_segment_are_restored_from_a_backup(filled, stored, backup):
    before = await rows(filled)
    flipped, missing, *_ = await acmes(filled)
    content = stored.read(flipped), stored.read(missing)
    stored.flip(flipped)
    stored.remove(missing)

    outcomes = await restore(filled.services, backup)

    assert [(each.segment, each.result, each.source) for each in outcomes] == [
        (flipped, Result.RESTORED, str(backup)),
        (missing, Result.RESTORED, str(backup)),
    ]
    assert (stored.read(flipped), stored.read(missing)) == content
    recorded = await filled.pages(event=EVENT)
    assert sorted(
        (each["payload"]["segment_id"], each["payload"]["damage"]) for each in recorded
    ) == sorted(
        [
            (flipped.segment_id, "wrong_sha256"),
            (missing.segment_id, "missing_file"),
        ]
    )
    assert {each["payload"]["source"] for each in recorded} == {"backup"}
    assert {each["actor"] for each in recorded} == {"system:cli"}
    assert await rows(filled) == before
    assert await restore(filled.services, backup) == []


async def test_a_whole_file_is_never_replaced(filled, stored, backup):
    segment, *_ = await acmes(filled)
    (backup / "audit" / segment.path(Path())).write_bytes(b"damaged")
    content = stored.read(segment)

    (outcome,) = await restore(filled.services, backup, ids=(segment.segment_id,))

    assert outcome.result is Result.WHOLE
    assert stored.read(segment) == content
    assert await filled.pages(event=EVENT) == []


async def test_a_copy_that_does_not_match_is_not_used(filled, stored, tmp_path, backup):
    segment, another, *_ = await acmes(filled)
    second = await back_up(filled, tmp_path / "second")
    at = segment.path(Path())
    shutil.copy(backup / "audit" / another.path(Path()), backup / "audit" / at)
    stored.flip(segment)
    content = stored.read(segment)

    (lost,) = await restore(filled.services, backup)
    assert (lost.result, lost.source) == (Result.LOST, "")
    assert [reason.partition(": ")[0] for reason in lost.reasons][-1] == str(backup)
    assert "its copy does not match the catalog" in lost.reasons[-1]
    assert stored.read(segment) == content
    assert await damaged(filled) == [segment.segment_id]
    assert await filled.pages(event=EVENT) == []

    (restored,) = await restore(filled.services, backup, second)
    assert (restored.result, restored.source) == (Result.RESTORED, str(second))
    assert await damaged(filled) == []


async def test_a_backup_that_was_taken_without_it_says_so(filled, stored, tmp_path):
    """Its manifest lists what was damaged then."""
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    backup = await back_up(filled, tmp_path / "backup")

    (lost,) = await restore(filled.services, backup)

    assert lost.reasons[-1].startswith(f"{backup}: the backup was taken without it (")


async def test_what_is_no_source_is_refused_before_anything_is_read(filled, tmp_path, backup):
    with pytest.raises(NOT_A_BACKUP):
        await restore(filled.services, tmp_path)
    with pytest.raises(NOT_A_SOURCE, match="give the folder of a backup, or s3://"):
        await restore(filled.services, "s3://")
    (backup / "manifest.json").write_bytes(b"{}")
    with pytest.raises(BackupDamaged):
        await restore(filled.services, backup)
    with pytest.raises(UNKNOWN_SEGMENT):
        await restore(filled.services, ids=("seg_unknown",))


async def test_a_damaged_index_is_built_again_with_its_segment(filled, stored, backup):
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    root = filled.services.settings.audit_dir
    segment.index_path(root).unlink(missing_ok=True)
    if filled.services.settings.segments_url:
        filled.services.lake.segments._objects.delete([segment.index_path(Path()).as_posix()])

    await restore(filled.services, backup)

    (again,) = [each for each in await acmes(filled) if each.segment_id == segment.segment_id]
    assert await filled.services.lake.verify(again, ignore) == (None, None)


async def test_a_full_disk_is_no_fault_of_the_backup(filled, stored, backup):
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    content = stored.read(segment)

    with full_disk(lambda step: step == "fsync"), pytest.raises(StorageFull):
        await restore(filled.services, backup)

    assert stored.read(segment) == content
    assert list(filled.services.settings.temp_dir.iterdir()) == []
    assert [each.result for each in await restore(filled.services, backup)] == [Result.RESTORED]


async def test_a_segment_that_is_merged_meanwhile_is_not_restored(filled, stored, backup):
    """Its file would be an orphan."""
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    work = SegmentRestore(
        filled.services, open_sources(filled.services.settings, [str(backup)]), BY_OPERATOR
    )
    async with filled.services.store.write() as unit:
        await retire_segments(unit.session, [segment], unit.now)

    outcome = await work.restore(segment)

    assert outcome.result is Result.REMOVED
    assert await filled.pages(event=EVENT) == []


@pytest.mark.parametrize("settings", ["folder"], indirect=True)
async def test_a_folder_is_restored_from_the_bucket_it_was_uploaded_to(
    filled,
    stored,
    bucket,
    clock,
):
    """Also while the settings do not name the bucket."""
    own = filled.services.settings
    services = build_services(bucket.settings(own), clock)
    await upload_segments(services.store, services.lake, ignore)
    await services.close()
    segment, *_ = await acmes(filled)
    segment.path(own.audit_dir).chmod(0o600)
    stored.flip(segment)
    endpoint = msgspec.structs.replace(own, segments_endpoint=bucket.server.endpoint)
    opened = open_sources(endpoint, [bucket.url])

    outcome = await SegmentRestore(filled.services, opened, BY_OPERATOR).restore(segment)

    assert (outcome.result, outcome.source) == (Result.RESTORED, bucket.url)
    assert {each["payload"]["source"] for each in await filled.pages(event=EVENT)} == {"bucket"}


@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
async def test_an_object_is_restored_from_this_machines_copy(filled, bucket):
    before = await rows(filled)
    segment, *_ = await acmes(filled)
    key = segment.path(Path()).as_posix()
    content = bucket.content(key)
    bucket.write(key, content[:-1])

    (outcome,) = await restore(filled.services)

    assert outcome.result is Result.RESTORED
    assert bucket.content(key) == content
    assert {each["payload"]["source"] for each in await filled.pages(event=EVENT)} == {"copy"}
    assert await rows(filled) == before


@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
async def test_a_damaged_copy_is_fetched_again_by_itself(filled, tmp_path):
    async with new_node(filled, tmp_path / "node") as node:
        before = await node.pages()
        root = node.services.settings.audit_dir
        for mode, segment in zip((0o400, 0o600), await acmes(node), strict=False):
            path = segment.path(root)
            content = path.read_bytes()
            path.chmod(0o600)
            path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
            path.chmod(mode)

    async with restarted(filled, tmp_path / "node") as again:
        assert await again.pages() == before


@asynccontextmanager
async def restarted(filled, folder: Path):
    """A node over a data dir that is there."""
    own = filled.services.settings
    settings = msgspec.structs.replace(own, data_dir=folder, database_url=own.database)
    app = create_app(settings, filled.clock, jobs=seal_jobs)
    services = app.extensions[EXTENSION]
    try:
        world = replace(filled.world, app=app, client=app.test_client(), services=services)
        yield replace(filled, world=world)
    finally:
        await services.close()


@pytest.mark.parametrize("settings", ["bucket"], indirect=True)
async def test_an_object_is_restored_from_a_backup_by_version(filled, bucket, tmp_path, clock):
    """The version that the manifest names is still in the bucket."""
    place = versioned(bucket)
    moved = build_services(place.settings(filled.services.settings), clock)
    try:
        await upload_segments(moved.store, moved.lake, ignore)
        there = replace(filled, world=replace(filled.world, services=moved))
        backup = await back_up(there, tmp_path / "versions", is_by_version=True)
        segment, *_ = await acmes(there)
        key = segment.path(Path()).as_posix()
        content = place.content(key)
        place.write(key, b"other")
        segment.path(moved.settings.audit_dir).unlink()

        (outcome,) = await restore(moved, backup)

        assert (outcome.result, outcome.source) == (Result.RESTORED, str(backup))
        assert place.content(key) == content
    finally:
        await moved.close()


@pytest.mark.parametrize("steps", range(0, 33, budget(8, 1)))
async def test_a_crash_at_any_step_loses_and_doubles_nothing(filled, stored, backup, steps):
    """The next run completes it; what is left is a file that a sweep removes."""
    before = await rows(filled)
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    services = filled.services

    try:
        with power_cut_after(steps, services.store):
            await restore(services, backup)
    except PowerCut:
        assert stored.read(segment) is not None
    await restore(services, backup)

    assert await rows(filled) == before
    assert await damaged(filled) == []
    assert len(await filled.pages(event=EVENT)) in {1, 2}
    left = list(services.settings.audit_dir.rglob("*.pending"))
    filled.clock.advance(days=3650)
    await services.garbage_collector.clear_orphans()
    assert all(not path.exists() for path in left)


@pytest.mark.slow
@sample(4)
@pytest.mark.parametrize("settings", ["folder"], indirect=True)
@pytest.mark.parametrize(
    ("step", "after"),
    [
        ("INSERT INTO journal", ""),
        ("COMMIT", "INSERT INTO journal"),
        ("fsync", "INSERT INTO journal"),
        ("rename", "INSERT INTO journal"),
        ("fsync", "rename"),
        ("UPDATE segments", "rename"),
    ],
)
async def test_kill_9_at_each_step_loses_and_doubles_nothing(filled, stored, backup, step, after):
    before = await rows(filled)
    segment, *_ = await acmes(filled)
    stored.flip(segment)

    await kill_process(
        filled.services.settings,
        START,
        "restore-segments",
        step,
        after=after,
        content=str(backup).encode(),
    )
    await restore(filled.services, backup)

    assert await rows(filled) == before
    assert await damaged(filled) == []


async def test_two_restores_at_once_replace_the_file_once(filled, stored, backup, worker):
    segment, *_ = await acmes(filled)
    stored.flip(segment)
    async with worker.lease.hold():
        with pytest.raises(LeaseTaken):
            await restore(filled.services, backup)
    await restore(filled.services, backup)
    assert await restore(worker, backup) == []

    assert len(await filled.pages(event=EVENT)) == 1
