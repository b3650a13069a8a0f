"""Restores a backup, which it verifies completely before it puts it in place in one step.

No service runs meanwhile, so all of this is synchronous.
"""

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, inspect

from analytics.model.errors import StoreFault
from analytics.storage.file_copy import FileCopy, SourceFault, sha256_of
from analytics.storage.fsync import fsync, sync_folders, write_synced
from analytics.storage.objects import Objects
from analytics.storage.prefix_owner import PrefixOwner, PrefixTaken
from analytics.storage.verified_files import COPY_MODE
from service.audit.backup.databases import is_postgresql
from service.audit.backup.manifest import (
    AUDIT,
    DATABASE,
    DUMP,
    KeptFile,
    Manifest,
    check_apart,
    check_room,
    part_of,
    read_manifest,
)
from service.audit.backup.object_versions import BroughtBack, version_fault
from service.audit.backup.refusals import (
    BACKUP_OF_POSTGRESQL,
    BACKUP_OF_SQLITE,
    DATA_DIR_IN_THE_WAY,
    DATA_DIR_IN_USE,
    DATA_DIR_IS_MOUNT,
    DATABASE_ELSEWHERE,
    DATABASE_IN_THE_WAY,
    DATABASE_IN_USE,
    PREFIX_IN_USE,
    BackupDamaged,
    ObjectDiffers,
)
from service.audit.evidence.continuity import RESTORED, TREES_SINCE, suspend_trees
from service.audit.evidence.trees import begin_generation
from service.audit.installation import open_objects, open_objects_at, renew_installation
from service.audit.streams.delivery import STREAMS_SINCE, pause_streams
from service.core.clock import utc_now
from service.core.ids import new_id
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.faults import store_faults
from service.store.lease import end_leases
from service.store.migrate import schema_version_of
from service.store.sqlite.files import file_of, is_in_use, url_of
from service.store.store import Store


class RestoreAttempt:
    """An attempt to restore a backup as the data dir at `data_dir`.

    Its installation is not that of the backup, which may still be running, nor that of an earlier
    restore that ended: each of these may remove objects of the other. It is that of an attempt
    that was killed, so that the next one may go on with the objects that are there. A file beside
    the data dir has it until then.
    """

    def __init__(self, manifest: Manifest, data_dir: Path) -> None:
        self._file = data_dir.with_name(f".{data_dir.name}.restore")
        self._backup = manifest.digest
        self.installation = self._left_behind() or new_id("inst")

    def begin(self) -> None:
        """Leave the id to the next attempt, from now on."""
        content = {"backup": self._backup, "installation": self.installation}
        write_synced(self._file, json.dumps(content).encode(), 0o600)

    def end(self) -> None:
        """Leave it no longer: the installation will be in place next, or it has no objects."""
        self._file.unlink(missing_ok=True)
        fsync(self._file.parent)

    def _left_behind(self) -> str:
        """The id of an earlier attempt with the same backup, or ""."""
        try:
            content = json.loads(self._file.read_bytes())
            return str(content["installation"]) if content["backup"] == self._backup else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, and where the former data dir was moved to (None: there was none)."""

    manifest: Manifest
    moved_to: Path | None


def restore_backup(
    settings: Settings,
    source: Path,
    show: Callable[[int, int], None],
    *,
    is_forced: bool,
    is_taken_over: bool = False,
) -> Restored:
    """Restore the backup in `source` as the data dir of `settings`, completely or not at all.

    Segments that were missing from the backup stay in the catalog: queries over their days fail,
    and `audit check` lists them.

    The data dir must be absent or empty, and so must a PostgreSQL database, to which no service may
    be connected; with `is_forced` an existing data dir is moved away, and connections are ignored.
    Nothing is deleted and no migration is run.
    With COUNTERSIGN_SEGMENTS_URL the segments are uploaded first; objects that are there with the
    same bytes are left as they are. Those of a backup by version are read from the bucket that it
    names, and stored where they are missing: in the bucket of the settings, or in the data dir.

    What is restored is an installation of its own, so the prefix must be empty; with
    `is_taken_over` it may be another's, which then loses it.

    Raises NOT_A_BACKUP, BackupDamaged, BACKUP_INSIDE, NEWER_BACKUP, NEWER_DATABASE,
    BACKUP_OF_POSTGRESQL, BACKUP_OF_SQLITE, DATABASE_ELSEWHERE, DATABASE_IN_THE_WAY,
    DATABASE_IN_USE, DATA_DIR_IN_THE_WAY, DATA_DIR_IN_USE, DATA_DIR_IS_MOUNT, TOO_LITTLE_SPACE,
    ObjectDiffers, PREFIX_IN_USE, PROGRAM_MISSING, StoreFault.
    """
    data_dir = settings.data_dir
    manifest = read_manifest(source)
    check_apart(source, data_dir)
    database = _RestoredDatabase(manifest, settings, is_forced=is_forced)
    _check_data_dir(settings, is_forced=is_forced)
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    attempt = RestoreAttempt(manifest, data_dir)
    segments = RestoredSegments(settings, attempt, is_taken_over=is_taken_over)
    with part_of(data_dir) as part, segments.claimed():
        check_room(part, manifest.size if settings.segments_url else manifest.size_with_objects)
        _copy(manifest, source, part, show)
        database.put_in(part, attempt.installation)
        for folder in (part / AUDIT, part / settings.temp_dir.name):
            folder.mkdir(exist_ok=True)
        segments.put(manifest, part, show)
        sync_folders(part)
        # Checked again: a service may have been started during the copy.
        is_in_the_way = _check_data_dir(settings, is_forced=is_forced)
        # As late as possible: a failure before this leaves the former installation its prefix.
        segments.take_over()
        database.fill(part, attempt.installation)
        # Before there is a data dir of this id: another restore must have another one.
        attempt.end()
        return Restored(
            manifest, _put_in_place(part, data_dir, utc_now() if is_in_the_way else None)
        )


def _check_data_dir(settings: Settings, *, is_forced: bool) -> bool:
    """True if a data dir has to be moved away. Raises DATA_DIR_IN_THE_WAY, DATA_DIR_IN_USE."""
    data_dir = settings.data_dir
    if not os.path.lexists(data_dir):
        return False
    if data_dir.is_mount():
        raise DATA_DIR_IS_MOUNT(value=str(data_dir))
    if data_dir.is_dir() and not any(data_dir.iterdir()):
        return False
    if not is_forced:
        raise DATA_DIR_IN_THE_WAY(value=str(data_dir))
    if is_postgresql(settings):
        return True  # what uses it is connected to the database, which is looked at
    database = file_of(settings.database)
    if database.is_file() and is_in_use(database):
        raise DATA_DIR_IN_USE(value=str(data_dir))
    return True


def _copy(manifest: Manifest, source: Path, part: Path, show: Callable[[int, int], None]) -> None:
    """Copy all files of the backup and verify each against the manifest."""
    done = 0
    for file in manifest.files:
        copy = FileCopy(source / file.path, part / file.path)
        try:
            for size in copy:
                done += size
                show(done, manifest.size_with_objects)
        except SourceFault as error:
            if error.errno != errno.ENOENT:
                raise
            raise BackupDamaged(value=f"{file.path} is missing") from error
        if (copy.size, copy.sha256) != (file.size, file.sha256):
            raise BackupDamaged(value=f"{file.path} is not what it was")


def _put_in_place(part: Path, data_dir: Path, moved_at: datetime | None) -> Path | None:
    """Rename `part` to `data_dir`; with `moved_at`, move that away first and return where to."""
    if moved_at is None:
        part.rename(data_dir)  # replaces an empty folder
        fsync(data_dir.parent)
        return None
    moved_to = data_dir.with_name(f"{data_dir.name}.before-{moved_at:%Y%m%dT%H%M%S.%fZ}")
    data_dir.rename(moved_to)
    try:
        part.rename(data_dir)
    except BaseException:  # even after Ctrl-C the service must have a data dir
        if not data_dir.exists():
            moved_to.rename(data_dir)
        raise
    fsync(data_dir.parent)
    return moved_to


class _RestoredDatabase:
    """The database of a backup with `manifest`, to restore with `settings`.

    It becomes that of the installation with the id it is given. Leases in it are ended: their
    holders do not run here. With `is_forced` connections to a PostgreSQL database do not matter.
    """

    def __init__(self, manifest: Manifest, settings: Settings, *, is_forced: bool) -> None:
        """Raises as `restore_backup` if it is not restorable."""
        self._settings = settings
        self._is_dump = manifest.is_postgresql
        self._is_forced = is_forced
        self._own: set[int] = set()
        """The server's processes for our own connections: they end a moment after those."""

        if self._is_dump != is_postgresql(settings):
            raise BACKUP_OF_POSTGRESQL if self._is_dump else BACKUP_OF_SQLITE
        if self._is_dump:
            self._check()
        elif file_of(settings.database).parent != settings.data_dir:
            raise DATABASE_ELSEWHERE

    def put_in(self, part: Path, installation: str) -> None:
        """Finish a file in the folder that will be the data dir, where the backup's files are."""
        if not self._is_dump:
            file = (part / DATABASE).rename(part / file_of(self._settings.database).name)
            asyncio.run(_begin(url_of(file), self._settings, installation))
            fsync(file)

    def fill(self, part: Path, installation: str) -> None:
        """Fill an empty database from its dump: the last step before the folder gets its name."""
        if self._is_dump:
            from service.store.postgres.dump import restore

            self._check()
            restore(self._settings.database, part / DUMP)
            asyncio.run(_begin(self._settings.database, self._settings, installation))
            (part / DUMP).unlink()

    def _check(self) -> None:
        """Raise DATABASE_IN_USE if another process is connected, DATABASE_IN_THE_WAY for a table.

        A service may be connected to an empty database: one that was dropped and created again.
        """
        names, others = asyncio.run(self._look())
        if others and not self._is_forced:
            raise DATABASE_IN_USE(value=str(others))
        if names:
            raise DATABASE_IN_THE_WAY(value=min(names))

    async def _look(self) -> tuple[list[str], int]:
        """The tables, and how many other connections of Countersign there are."""
        from service.store.postgres.dump import other_connections

        engines = create_engines(self._settings.database, self._settings.database_wait_s)
        try:
            with store_faults():
                async with engines.reader.connect() as connection:
                    names = await connection.run_sync(
                        lambda reading: inspect(reading).get_table_names()
                    )
                    others = await other_connections(connection, self._own)
        finally:
            await engines.dispose()
        return names, others


async def _begin(url: str | URL, settings: Settings, installation: str) -> None:
    """Expire the leases in the backup, and give the restored installation its own id.

    It is not the one that was backed up, which may still be running, and may have signed
    checkpoints since: see `service.audit.evidence.continuity`. A backup of an older schema has no
    trees yet.
    """
    store = Store(create_engines(url, settings.database_wait_s), utc_now)
    try:
        async with store.write() as work:
            await end_leases(work.session)
            await renew_installation(work.session, installation)
            await begin_generation(work)  # of trees that are not in the backup
            if await schema_version_of(work.session) >= TREES_SINCE:
                await suspend_trees(work.session, RESTORED)
            if await schema_version_of(work.session) >= STREAMS_SINCE:
                await pause_streams(work.session)
    finally:
        await store.close()


class RestoredSegments:
    """The bucket's prefix, for the installation that is being restored.

    Its files become copies of the objects. Without a bucket they are the segments.
    """

    def __init__(self, settings: Settings, attempt: RestoreAttempt, *, is_taken_over: bool) -> None:
        self._settings = settings
        self._objects = open_objects(settings) if settings.segments_url else None
        self._attempt = attempt
        self._is_taken_over = is_taken_over
        self._has_uploaded = False

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """In the block the prefix is no other installation's; it stays ours if it gets objects.

        With `is_taken_over` it may be another's, and becomes ours by `take_over`. Raises
        PREFIX_IN_USE, StoreFault.
        """
        if self._objects is None or self._is_taken_over:
            yield
            return
        owner, installation = PrefixOwner(self._objects), self._attempt.installation
        self._attempt.begin()
        try:
            is_adopted = not owner.is_owner(installation)
            if is_adopted:
                owner.adopt(installation, ())
        except PrefixTaken as error:
            self._attempt.end()
            raise PREFIX_IN_USE(value=str(error)) from error
        try:
            yield
        except BaseException:
            # With objects in it, it is kept for another attempt, which has the same id. An earlier
            # attempt may have put them there.
            if is_adopted and not self._has_uploaded:
                with suppress(StoreFault):  # what went wrong before is what the caller must know
                    owner.give_up()
                    self._attempt.end()
            raise

    def put(self, manifest: Manifest, part: Path, show: Callable[[int, int], None]) -> None:
        """Upload the segments and indexes that are in `part`, and bring back those of versions.

        `show` is called with their bytes. Raises ObjectDiffers, BackupDamaged, StoreFault.
        """
        if self._objects is not None:
            # Before the first object: an upload that fails may have stored some.
            self._has_uploaded = True
            _upload(self._objects, manifest, part)
        if not manifest.object_versions:
            return
        versions = BroughtBack(self._settings, manifest, self._objects, part)
        done = manifest.size
        for entry in manifest.object_versions:
            versions.put(entry)
            done += entry.size
            show(done, manifest.size_with_objects)

    def take_over(self) -> None:
        """End the right of a former owner to the prefix. Raises StoreFault."""
        if self._objects is not None and self._is_taken_over:
            PrefixOwner(self._objects).take_over(self._attempt.installation)


def _upload(objects: Objects, manifest: Manifest, part: Path) -> None:
    folder = part / AUDIT
    for file in manifest.files:
        path = part / file.path
        if not path.is_relative_to(folder):
            continue
        key = path.relative_to(folder).as_posix()
        if path.suffix == ".index":
            objects.replace(key, path)
        elif not objects.create(key, path) and objects.digest(key, file.size) != file.sha256:
            raise ObjectDiffers(value=key)
        # Only now that it is stored may the file be dropped as a copy.
        path.chmod(COPY_MODE)


def check_backup(
    settings: Settings, source: Path, show: Callable[[int, int], None]
) -> tuple[Manifest, list[str]]:
    """The manifest of the backup in `source`, and a line for each file or version that is wrong.

    Each is read as a whole, except what a restore does not need of the bucket. `show` is called
    with the bytes done and in total. Raises as `read_manifest`, StoreUnreachable.
    """
    manifest = read_manifest(source)
    total, done = manifest.size_with_objects, 0
    findings: list[str] = []
    for file in manifest.files:
        if fault := _file_fault(source / file.path, file):
            findings.append(f"{file.path}: {fault}")
        done += file.size
        show(done, total)
    if not manifest.object_versions:
        return manifest, findings
    objects = open_objects_at(settings, manifest.objects_place)
    for entry in manifest.object_versions:
        if entry.is_needed(utc_now()) and (fault := version_fault(objects, entry)):
            findings.append(f"{entry.path}: {fault}")
        done += entry.size
        show(done, total)
    return manifest, findings


def _file_fault(path: Path, file: KeptFile) -> str:
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{size} bytes instead of {file.size}"
        return "" if sha256_of(path) == file.sha256 else "it has other contents"
    except FileNotFoundError:
        return "it is missing"
