"""Restores a backup: verifies it completely first, and then puts it in place in one step.

No service runs meanwhile, so all of this is synchronous.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from analytics.storage.file_copy import FileCopy, SourceFault
from analytics.storage.fsync import fsync, sync_folders
from service.audit.backup.attempt import RestoreAttempt
from service.audit.backup.databases import is_postgresql
from service.audit.backup.folders import check_apart, check_room, part_of
from service.audit.backup.manifest import AUDIT, Manifest, read_manifest
from service.audit.backup.refusals import (
    BackupDamaged,
    DataDirInTheWay,
    DataDirInUse,
    DataDirIsMount,
)
from service.audit.backup.restored_databases import restored_database
from service.audit.backup.restored_segments import RestoredSegments
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.sqlite.files import file_of, is_in_use


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

    Raises NotABackup, BackupDamaged, BackupInside, NewerBackup, NewerDatabase, BackupOfPostgresql,
    BackupOfSqlite, DatabaseElsewhere, DatabaseInTheWay, DatabaseInUse, DataDirInTheWay,
    DataDirInUse, DataDirIsMount, NoRoom, ObjectDiffers, PrefixInUse, ProgramMissing, StoreFault.
    """
    data_dir = settings.data_dir
    manifest = read_manifest(source)
    check_apart(source, data_dir)
    database = restored_database(manifest, settings, is_forced=is_forced)
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
    """True if a data dir has to be moved away. Raises DataDirInTheWay, DataDirInUse."""
    data_dir = settings.data_dir
    if not os.path.lexists(data_dir):
        return False
    if data_dir.is_mount():
        raise DataDirIsMount(value=str(data_dir))
    if data_dir.is_dir() and not any(data_dir.iterdir()):
        return False
    if not is_forced:
        raise DataDirInTheWay(value=str(data_dir))
    if is_postgresql(settings):
        return True  # what uses it is connected to the database, which is looked at
    database = file_of(settings.database)
    if database.is_file() and is_in_use(database):
        raise DataDirInUse(value=str(data_dir))
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
