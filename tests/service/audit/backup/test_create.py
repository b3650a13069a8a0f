"""Taking a backup: whole or not there, of one instant, and nothing in it that is not whole."""

import asyncio
import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from analytics.model.schema import SCHEMA_VERSION
from analytics.storage.file_copy import FileCopy, SourceFault
from analytics.storage.segment_metadata import Segment
from service.audit.backup.manifest import DATABASE, NAME, MissingSegment, read_manifest
from service.audit.backup.refusals import (
    BACKUP_EXISTS,
    BACKUP_INSIDE,
    LINKS_IMPOSSIBLE,
    TOO_LITTLE_SPACE,
    BackupOvertaken,
)
from service.core.errors import STORAGE_DAMAGED
from service.store.catalog import list_live_segments
from service.store.journal import append
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START
from tests.crashes import at, full_disk
from tests.service.audit.backup.conftest import (
    GRACE_S,
    NO_ROOM,
    entries,
    left_over,
    restored_entries,
    take,
    take_refused,
    tree,
)
from tests.service.audit.conftest import start_worker

pytestmark = pytest.mark.sqlite_only(reason="copies a file; PostgreSQL: test_postgresql.py")


@pytest.mark.parametrize("is_linked", [False, True])
async def test_what_comes_back_is_what_was_there(filled, target, tmp_path, is_linked):
    before = await entries(filled)
    assert all(before.values())

    manifest = await take(filled.services, target, is_linked=is_linked)
    await filled.accept([sample_row(filled.clock())])

    assert manifest.rows == sum(map(len, before.values()))
    assert await restored_entries(filled, target, tmp_path / "restored") == before


async def test_the_manifest_names_every_file_and_no_other(filled, target):
    manifest = await take(filled.services, target)
    async with filled.services.store.read() as session:
        live = await list_live_segments(session)

    held = tree(target)
    assert manifest == read_manifest(target)
    assert manifest.audit_schema == SCHEMA_VERSION
    assert {file.path for file in manifest.files} == held.keys() - {NAME}
    for file in manifest.files:
        assert file.size == len(held[file.path])
        assert file.sha256 == hashlib.sha256(held[file.path]).hexdigest()
    assert held.keys() == {
        NAME,
        DATABASE,
        *(segment.path(Path("audit")).as_posix() for segment in live),
        *(segment.index_path(Path("audit")).as_posix() for segment in live),
    }


async def test_only_its_owner_can_read_it(filled, target):
    """Hashes of credentials are in the database."""
    await take(filled.services, target)

    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    for path in target.rglob("*"):
        if path.is_file():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_secrets_are_in_it_only_when_asked_for(filled, target, tmp_path):
    """Those who keep backups are not always those who may sign in."""
    data_dir = filled.services.settings.data_dir
    for name in ("admin_token", "secret_key"):
        (data_dir / name).write_text("a secret of twenty chars\n")

    await take(filled.services, target)
    await take(filled.services, tmp_path / "whole", has_secrets=True)

    assert not {"admin_token", "secret_key"} & tree(target).keys()
    assert {"admin_token", "secret_key"} < tree(tmp_path / "whole").keys()
    for name in ("admin_token", "secret_key"):
        assert (tmp_path / "whole" / name).read_text() == "a secret of twenty chars\n"
        assert stat.S_IMODE((tmp_path / "whole" / name).stat().st_mode) == 0o600


async def test_linked_segments_take_no_room_and_outlive_the_service_own(filled, target):
    """Segments never change, and removing one name leaves the other."""
    await take(filled.services, target, is_linked=True)
    originals = {path.name: path for path in filled.services.settings.audit_dir.rglob("*.parquet")}
    linked = list(target.rglob("*.parquet"))
    before = tree(target)

    assert linked
    for path in linked:
        assert path.samefile(originals[path.name])
    filled.clock.advance(days=2)
    await filled.services.compactor.compact_due(everything=True)
    filled.clock.advance(seconds=GRACE_S + 1)
    assert await filled.services.garbage_collector.unlink_retired() > 0
    assert tree(target) == before


async def test_links_to_another_file_system_are_refused(filled, target, monkeypatch):
    def refuse(self, original):
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(original), None, str(self))

    monkeypatch.setattr(Path, "hardlink_to", refuse)

    await take_refused(LINKS_IMPOSSIBLE, filled.services, target, is_linked=True)


@sample(1)
@pytest.mark.parametrize("is_linked", [False, True])
async def test_changes_during_the_backup_are_not_in_it(
    filled, target, tmp_path, monkeypatch, is_linked
):
    before = await entries(filled)
    worker = start_worker(filled.services.settings, filled.clock)
    iterate = FileCopy.__iter__

    def changed_before(self):
        async def change() -> None:
            async with worker.store.write() as work:
                await append(
                    work.session,
                    filled.world.acme.id,
                    [sample_row(START - timedelta(days=1))],
                    now=work.now,
                )
            await worker.sealer.seal_due(everything=True)
            await worker.compactor.compact_due(everything=True)
            await worker.store.close()

        asyncio.run(change())
        yield from iterate(self)

    monkeypatch.setattr(FileCopy, "__iter__", changed_before)
    await take(filled.services, target, is_linked=is_linked)
    monkeypatch.undo()
    worker.lake.close()

    assert await restored_entries(filled, target, tmp_path / "restored") == before
    assert len((await entries(filled))["acme"]) > len(before["acme"])


async def test_a_backup_that_outlasts_the_grace_fails_with_a_clear_line(
    filled, target, monkeypatch
):
    """A file it was to copy is gone for a valid reason."""
    iterate = FileCopy.__iter__
    lost: list[Path] = []

    def removed_before(self):
        if not lost and self.source.suffix == ".parquet":
            lost.append(self.source)
            with sqlite3.connect(filled.services.settings.data_dir / DATABASE) as other:
                other.execute("UPDATE segments SET retired_at = 1 WHERE id = ?", [self.source.stem])
            other.close()
            self.source.unlink()
        yield from iterate(self)

    monkeypatch.setattr(FileCopy, "__iter__", removed_before)

    await take_refused(BackupOvertaken, filled.services, target, "take the backup again")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def unreadable(path: Path) -> None:
    """A folder: opened like a file, and read like none."""
    path.unlink()
    path.mkdir()


DAMAGES = {
    Path.unlink: "missing_file",
    flip: "wrong_sha256",
    lambda path: path.write_bytes(b""): "wrong_size",
    unreadable: "unreadable",
}


@sample(5)
@pytest.mark.parametrize(
    ("damage", "is_linked"),
    [(damage, False) for damage in DAMAGES]
    + [(damage, True) for damage in DAMAGES if damage is not unreadable],
)
async def test_a_damaged_segment_is_named_and_left_out_and_all_else_is_there(
    filled, target, damage, is_linked
):
    """One bad sector must not prevent the backup, nor be taken for intact bytes."""
    before = await entries(filled)
    whole = await take(filled.services, target.with_name("whole"))
    lost, *others = await live_segments(filled)
    damage(lost.path(filled.services.settings.audit_dir))

    manifest = await take(filled.services, target, is_linked=is_linked)

    name = lost.path(Path("audit")).as_posix()
    assert manifest.missing_segments == (MissingSegment(name, lost.rows, DAMAGES[damage]),)
    assert manifest == read_manifest(target)
    assert manifest.rows == sum(map(len, before.values())) - lost.rows
    without = {name, lost.index_path(Path("audit")).as_posix(), DATABASE}
    assert [file for file in whole.files if file.path not in without] == [
        file for file in manifest.files if file.path != DATABASE
    ]
    assert tree(target).keys() == {NAME, *(file.path for file in manifest.files)}
    assert len(manifest.files) == 2 * len(others) + 1


async def test_a_backup_may_have_lost_every_segment(filled, target):
    segments = await live_segments(filled)
    for segment in segments:
        segment.path(filled.services.settings.audit_dir).unlink()

    manifest = await take(filled.services, target)

    assert len(manifest.missing_segments) == len(segments) > 1
    assert tree(target).keys() == {NAME, DATABASE}


async def test_a_disk_that_fails_while_a_segment_is_read_costs_that_segment(
    filled, target, monkeypatch
):
    lost = (await live_segments(filled))[0]
    step, was_begun = FileCopy._step, []

    def failing(self: FileCopy, file: BinaryIO) -> bytes:
        if self.source.stem == lost.segment_id and self.size:
            was_begun.append(self.target.exists())
            raise SourceFault(errno.EIO, "Input/output error", str(self.source))
        return step(self, file)

    monkeypatch.setattr(FileCopy, "_step", failing)
    manifest = await take(filled.services, target)

    assert was_begun == [True]
    assert [one.kind for one in manifest.missing_segments] == ["unreadable"]
    assert tree(target).keys() == {NAME, *(file.path for file in manifest.files)}


async def test_a_target_that_takes_no_more_is_no_damage_of_a_segment(filled, target, monkeypatch):
    """What cannot be written must not be left out as if it could not be read."""
    iterate = FileCopy.__iter__

    def full(self: FileCopy) -> Iterator[int]:
        yield from iterate(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileCopy, "__iter__", full)

    await take_refused(OSError, filled.services, target, "No space")


async def live_segments(audit) -> list[Segment]:
    async with audit.services.store.read() as session:
        return await list_live_segments(session)


async def test_a_damaged_database_is_not_taken_for_a_backup(filled, target, monkeypatch):
    """SQLite copies pages without checking them."""
    database = filled.services.settings.data_dir / DATABASE
    copy = target.parent / "damaged.db"
    await take(filled.services, target)
    content = bytearray((target / DATABASE).read_bytes())
    for start in range(8192, len(content) - 4096, 8192):
        content[start : start + 64] = b"\xff" * 64
    copy.write_bytes(content)
    monkeypatch.setattr("service.audit.backup.databases.file_of", lambda url: copy)

    with pytest.raises(STORAGE_DAMAGED):
        await take(filled.services, target.with_name("second"))

    assert database.exists()
    assert not target.with_name("second").exists()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
async def test_a_name_that_is_taken_is_refused(filled, target, make):
    """A backup never replaces anything, be it empty."""
    make(target)
    before = os.lstat(target)

    with pytest.raises(BACKUP_EXISTS):
        await take(filled.services, target)

    assert os.lstat(target) == before
    assert left_over(target.parent) == []


@pytest.mark.parametrize("place", ["data/backup", "data/audit/backup", "data/../data/backup"])
async def test_a_backup_within_the_data_dir_is_refused(filled, tmp_path, place):
    """It would be lost together with it, and be part of the next one."""
    with pytest.raises(BACKUP_INSIDE):
        await take(filled.services, tmp_path / place)


async def test_a_place_without_room_is_refused_before_anything_is_copied(
    filled, target, monkeypatch
):
    monkeypatch.setattr("service.audit.backup.manifest.shutil.disk_usage", lambda _: NO_ROOM)

    await take_refused(TOO_LITTLE_SPACE, filled.services, target, "0 are free")
    await take(filled.services, target, is_linked=True)


@sample(2)
@pytest.mark.parametrize("on_call", range(1, 12))
async def test_a_disk_that_is_full_at_any_step_leaves_nothing(filled, target, on_call):
    with full_disk(at("fsync", on_call)):
        await take_refused(OSError, filled.services, target, "No space")


async def test_every_byte_and_name_is_durable_before_the_backup_has_its_own(
    filled,
    target,
    file_steps,
):
    manifest = await take(filled.services, target)

    named = file_steps.index("rename", target)
    synced = {path: index for index, (what, path) in enumerate(file_steps.steps) if what == "fsync"}
    (part,) = {path.parent for path in synced if path.name == DATABASE}
    for file in manifest.files:
        assert synced[part / file.path] < named
        assert file_steps.synced_bytes[part / file.path] == file.size
    folders = {path.relative_to(target) for path in target.rglob("*") if path.is_dir()}
    for folder in [Path(), *folders]:
        assert synced[part / folder] < named
    assert synced[target.parent] > named


async def test_an_aborted_backup_leaves_nothing(filled, target, monkeypatch):
    """Ctrl-C cancels it while a thread works; that step ends before the folder goes."""
    iterate = FileCopy.__iter__
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(self):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.05)
        yield from iterate(self)

    monkeypatch.setattr(FileCopy, "__iter__", slow)
    taking = asyncio.create_task(take(filled.services, target))
    await begun.wait()
    taking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await taking

    assert not target.exists()
    assert left_over(target.parent) == []


@pytest.mark.parametrize("has_lost", [False, True])
async def test_progress_ends_with_all_bytes(filled, target, has_lost):
    shown: list[tuple[int, int]] = []
    if has_lost:
        (await live_segments(filled))[0].path(filled.services.settings.audit_dir).unlink()

    manifest = await take(filled.services, target, show=lambda *now: shown.append(now))

    assert shown[-1] == (manifest.size, manifest.size)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
