"""Backups that name versions of objects: what they record, check, bring back, and never half."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from analytics.storage.objects import Objects
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION
from service.audit.backup.create import take_backup
from service.audit.backup.manifest import NAME, Manifest, read_manifest
from service.audit.backup.refusals import NO_VERSIONS, PREFIX_IN_USE, BackupDamaged, ObjectDiffers
from service.audit.backup.restore import check_backup, restore_backup
from service.audit.stats import storage_stats_by_tenant
from service.core.settings import Settings
from service.core.storage_stats import total_of
from tests.budgets import only_full, sample
from tests.conftest import settings_over
from tests.crashes import PowerCut, at, power_cut
from tests.seaweedfs import Bucket, versioned
from tests.service.audit.conftest import audit
from tests.service.audit.test_s3 import filled, live

__all__ = ["audit", "filled"]  # fixtures

pytestmark = pytest.mark.sqlite_only(reason="a dump of PostgreSQL differs in the database alone")


@pytest.fixture
def place(bucket) -> Bucket:
    return versioned(bucket)


@pytest.fixture
def settings(tmp_path, place) -> Settings:
    return place.settings(settings_over(tmp_path / "own"))


def ignore(*_: object) -> None:
    """For those that tell how far they are."""


async def back_up(filled, target: Path) -> Manifest:
    return await take_backup(
        filled.services,
        target,
        ignore,
        is_linked=False,
        has_secrets=False,
        is_by_version=True,
    )


@pytest.fixture
async def backup(filled, tmp_path) -> Path:
    """A backup by version of `filled`."""
    await back_up(filled, tmp_path / "backup")
    return tmp_path / "backup"


@pytest.fixture
def same_place(settings, tmp_path, filled) -> Settings:
    """Another machine, after the first was lost: an empty disk, and the same prefix."""
    own = filled.services.settings
    return msgspec.structs.replace(own, data_dir=tmp_path / "new", database_url="")


async def restore(settings: Settings, backup: Path, *, is_taken_over: bool = True) -> None:
    """As the command does, which has no event loop."""
    await asyncio.to_thread(
        restore_backup, settings, backup, ignore, is_forced=False, is_taken_over=is_taken_over
    )


async def check(settings: Settings, backup: Path) -> list[str]:
    _, findings = await asyncio.to_thread(check_backup, settings, backup, ignore)
    return findings


async def pages_of(settings: Settings, filled) -> list[dict]:
    """What a service over a restored data dir answers, copies of segments put out of the way."""
    for folder in settings.audit_dir.glob("tenant=*") if settings.segments_url else ():
        shutil.rmtree(folder)
    app = create_app(await prepare(settings, filled.clock), filled.clock)
    try:
        path = "/api/v1/admin/orgs/acme/audit?limit=1000"
        response = await app.test_client().get(path, headers=filled.world.admin)
        assert response.status_code == 200
        return (await response.get_json())["entries"]
    finally:
        await app.extensions[EXTENSION].close()


def key_of(filled, segment) -> str:
    root = filled.services.settings.audit_dir
    return segment.path(root).relative_to(root).as_posix()


async def test_a_backup_by_version_copies_no_segment(filled, backup, place):
    manifest = read_manifest(backup)

    assert manifest.format == 4
    assert {path.name for path in backup.iterdir()} == {NAME, "countersign.db"}
    assert manifest.objects_place == place.url
    assert {entry.key for entry in manifest.object_versions} == place.list_keys()
    for entry in manifest.object_versions:
        found = place.objects().find(entry.key)
        assert (found.version, found.size) == (entry.version, entry.size)
    assert manifest.rows == await check_rows(filled)


async def test_a_segment_that_is_known_to_be_damaged_is_left_out_and_listed(
    filled, place, tmp_path
):
    """Its size says nothing: the version would be found damaged when it is needed."""
    segment, *others = await live(filled)
    content = place.content(key_of(filled, segment))
    place.write(key_of(filled, segment), content[:200] + bytes([content[200] ^ 1]) + content[201:])
    segment.path(filled.services.settings.audit_dir).unlink()
    filled.clock.advance(days=8)
    while await filled.services.scrubber.scrub_due():
        pass

    manifest = await back_up(filled, tmp_path / "backup")

    (missing,) = manifest.missing_segments
    assert (missing.rows, missing.kind) == (segment.rows, "wrong_sha256")
    keys = {entry.key for entry in manifest.object_versions if not entry.is_index}
    assert keys == {key_of(filled, each) for each in others}


async def check_rows(filled) -> int:
    async with filled.services.store.read() as session:
        return total_of((await storage_stats_by_tenant(session)).values()).rows


async def test_removed_and_overwritten_objects_come_back(filled, backup, place, same_place):
    before = await filled.pages(limit=1000)
    removed, damaged, *others = await live(filled)
    place.objects().delete([key_of(filled, removed)])
    place.write(key_of(filled, damaged), b"something else")
    kept = [place.objects().find(key_of(filled, segment)) for segment in others]

    with pytest.raises(PREFIX_IN_USE):
        await restore(same_place, backup, is_taken_over=False)
    await restore(same_place, backup)

    assert [place.objects().find(key_of(filled, segment)) for segment in others] == kept
    assert await pages_of(same_place, filled) == before


async def test_objects_are_brought_to_another_prefix(filled, backup, place, same_place):
    before, keys = await filled.pages(limit=1000), place.list_keys()
    elsewhere = msgspec.structs.replace(same_place, segments_url=place.url + "/restored")
    place.objects().delete(sorted(keys))

    await restore(elsewhere, backup, is_taken_over=False)

    assert place.list_keys() == set()
    assert await pages_of(elsewhere, filled) == before


@only_full
async def test_objects_are_brought_to_a_folder(filled, backup, same_place):
    before = await filled.pages(limit=1000)
    local = msgspec.structs.replace(same_place, segments_url="")

    await restore(local, backup, is_taken_over=False)

    assert await pages_of(local, filled) == before


async def test_a_check_reads_every_version(filled, backup, place, same_place, monkeypatch):
    assert await check(same_place, backup) == []
    place.objects().delete(sorted(place.list_keys()))
    assert await check(same_place, backup) == []  # all versions are still there
    rows = [entry for entry in read_manifest(backup).object_versions if not entry.is_index]
    missing, changed = rows[:2]
    find, digest = Objects.find, Objects.digest

    def find_wrong(objects, key, version=""):
        return None if key == missing.key else find(objects, key, version)

    def digest_wrong(objects, key, *given):
        return "0" * 64 if key == changed.key else digest(objects, key, *given)

    monkeypatch.setattr(Objects, "find", find_wrong)
    monkeypatch.setattr(Objects, "digest", digest_wrong)
    assert await check(same_place, backup) == [
        f"{missing.path}: version {missing.version} is missing",
        f"{changed.path}: version {changed.version} has other contents",
    ]
    assert not same_place.data_dir.exists()


def with_manifest(backup: Path, **changes: object) -> None:
    """The backup with another manifest, which is whole in itself."""
    manifest = msgspec.structs.replace(read_manifest(backup), **changes)
    (backup / NAME).write_bytes(msgspec.json.encode(manifest.with_digest()))


async def test_a_version_that_is_gone_ends_the_restore_with_nothing_in_place(
    filled, backup, place, same_place
):
    first, *others = read_manifest(backup).object_versions
    place.objects().delete([first.key])
    for version, said in (("0" * 32, "is missing"), (first.version, "is not what it was")):
        changed = msgspec.structs.replace(first, version=version, sha256="0" * 64)
        with_manifest(backup, objects=(changed, *others))

        with pytest.raises(BackupDamaged, match=f"version {version} {said}"):
            await restore(same_place, backup)
        assert not same_place.data_dir.exists()
        assert len(await check(same_place, backup)) == 1


@sample(2)
@pytest.mark.parametrize(
    "change",
    [
        {"path": "audit/../../etc/passwd"},
        {"path": "countersign.db"},
        {"path": "audit/_countersign/installation"},
        {"version": ""},
    ],
)
async def test_a_manifest_whose_objects_lead_elsewhere_is_refused(filled, backup, change):
    first, *others = read_manifest(backup).object_versions
    with_manifest(backup, objects=(msgspec.structs.replace(first, **change), *others))

    with pytest.raises(BackupDamaged):
        read_manifest(backup)


async def test_another_object_of_that_name_elsewhere_is_left(filled, backup, place, same_place):
    """In another prefix it may belong to another program."""
    elsewhere = msgspec.structs.replace(same_place, segments_url=place.url + "/restored")
    first = next(e for e in read_manifest(backup).object_versions if not e.is_index)
    place.write(f"restored/{first.key}", b"other")

    with pytest.raises(ObjectDiffers):
        await restore(elsewhere, backup)

    assert place.content(f"restored/{first.key}") == b"other"
    assert not elsewhere.data_dir.exists()


async def test_an_object_without_the_catalogs_size_is_left_out(filled, place, tmp_path):
    first, *_ = await live(filled)
    place.objects().delete([key_of(filled, first)])
    first.path(filled.services.settings.audit_dir).unlink()

    manifest = await back_up(filled, tmp_path / "backup")

    (missing,) = manifest.missing_segments
    assert missing.path == f"audit/{key_of(filled, first)}"
    assert missing.path not in {entry.path for entry in manifest.object_versions}


@pytest.mark.parametrize("kind", ["a bucket without versions", "a folder"])
async def test_without_versions_there_is_no_backup_by_version(filled, bucket, tmp_path, kind):
    """Objects could be replaced or removed, and the backup with them."""
    own = filled.services.settings
    url = bucket.url if kind == "a bucket without versions" else ""
    other = msgspec.structs.replace(own, segments_url=url, data_dir=tmp_path / "other")
    app = create_app(await prepare(other, filled.clock), filled.clock)
    services = app.extensions[EXTENSION]
    try:
        with pytest.raises(NO_VERSIONS):
            await take_backup(
                services,
                tmp_path / "backup",
                ignore,
                is_linked=False,
                has_secrets=False,
                is_by_version=True,
            )
    finally:
        await services.close()
    assert not (tmp_path / "backup").exists()


STEPS = [
    *[("put object", number) for number in (1, 2, 4)],
    *[("fsync", number) for number in (1, 3, 6)],
    ("rename", 1),
    ("rename", 2),
]


@pytest.mark.parametrize(
    ("step", "number"),
    [pytest.param(*each, marks=() if each == ("put object", 2) else only_full) for each in STEPS],
)
async def test_a_restore_that_ends_at_any_step_is_not_in_place_and_can_be_repeated(
    filled, backup, place, same_place, step, number
):
    before = await filled.pages(limit=1000)
    contents = {key: place.content(key) for key in place.list_keys()}
    place.objects().delete(sorted(contents))

    with power_cut(filled.services.store, at(step, number)):
        try:
            await restore(same_place, backup)
        except PowerCut:
            assert not same_place.data_dir.exists()

    came_back = {key: place.content(key) for key in place.list_keys()}
    assert came_back.items() <= contents.items()
    if not same_place.data_dir.exists():
        await restore(same_place, backup)
    assert await pages_of(same_place, filled) == before
