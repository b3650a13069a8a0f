"""Putting a backup back: checked to the last byte first, and then in one step.

Nothing serves meanwhile, so all of this is synchronous.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from analytics.storage.file_copy import FileCopy, SourceFault
from analytics.storage.fsync import fsync, sync_folders
from service.audit.lease import end_leases
from service.backup.folders import check_apart, check_room, part_of
from service.backup.manifest import AUDIT, DATABASE, Manifest, read_manifest
from service.backup.refusals import (
    BackupDamaged,
    DatabaseElsewhere,
    DataDirInTheWay,
    DataDirInUse,
    DataDirIsMount,
)
from service.clock import utc_now
from service.settings import Settings
from service.store.engine import create_engines, file_of, is_in_use, url_of
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back, and where what was there before has gone (None: nothing was)."""

    manifest: Manifest
    moved_to: Path | None


def restore_backup(
    settings: Settings, source: Path, show: Callable[[int, int], None], *, is_forced: bool
) -> Restored:
    """The backup in `source` as the data dir of `settings`: all that is in it, or nothing.

    Segments that were missing when it was taken stay in the catalog: queries over their days fail,
    and `audit check` names them.

    The data dir is absent or empty; with `is_forced` what is there is moved aside, and nothing is
    ever deleted. No migration is run. Raises NotABackup, BackupDamaged, BackupInside, NewerBackup,
    NewerDatabase, DatabaseElsewhere, DataDirInTheWay, DataDirInUse, DataDirIsMount, NoRoom.
    """
    data_dir = settings.data_dir
    manifest = read_manifest(source)
    check_apart(source, data_dir)
    database = _place_of_database(settings)
    _check_data_dir(settings, is_forced=is_forced)
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    with part_of(data_dir) as part:
        check_room(part, manifest.size)
        _copy(manifest, source, part, show)
        (part / DATABASE).rename(part / database)
        asyncio.run(_end_leases(part / database, settings.database_wait_s))
        for folder in (part / AUDIT, part / settings.temp_dir.name):
            folder.mkdir(exist_ok=True)
        fsync(part / database)
        sync_folders(part)
        # Once more: copying takes its time, and somebody may have started a service meanwhile.
        is_in_the_way = _check_data_dir(settings, is_forced=is_forced)
        return Restored(
            manifest, _put_in_place(part, data_dir, utc_now() if is_in_the_way else None)
        )


def _place_of_database(settings: Settings) -> Path:
    """Where in the data dir the database is to be. Raises DatabaseElsewhere."""
    file = file_of(settings.database)
    if file.parent != settings.data_dir:
        raise DatabaseElsewhere
    return Path(file.name)


def _check_data_dir(settings: Settings, *, is_forced: bool) -> bool:
    """True if something has to be moved aside. Raises DataDirInTheWay, DataDirInUse."""
    data_dir = settings.data_dir
    if not os.path.lexists(data_dir):
        return False
    if data_dir.is_mount():
        raise DataDirIsMount(value=str(data_dir))
    if data_dir.is_dir() and not any(data_dir.iterdir()):
        return False
    if not is_forced:
        raise DataDirInTheWay(value=str(data_dir))
    database = file_of(settings.database)
    if database.is_file() and is_in_use(database):
        raise DataDirInUse(value=str(data_dir))
    return True


def _copy(manifest: Manifest, source: Path, part: Path, show: Callable[[int, int], None]) -> None:
    """Every file of the backup, each what it was when the backup was taken."""
    done = 0
    for file in manifest.files:
        copy = FileCopy(source / file.path, part / file.path)
        try:
            for size in copy:
                done += size
                show(done, manifest.size)
        except SourceFault as error:
            if error.errno != errno.ENOENT:
                raise
            raise BackupDamaged(value=f"{file.path} is missing") from error
        if (copy.size, copy.sha256) != (file.size, file.sha256):
            raise BackupDamaged(value=f"{file.path} is not what it was")


async def _end_leases(database: Path, wait_s: float) -> None:
    """Whoever held a lease when the backup was taken does not hold it here."""
    store = Store(create_engines(url_of(database), wait_s), utc_now)
    try:
        async with store.write() as work:
            await end_leases(work)
    finally:
        await store.close()


def _put_in_place(part: Path, data_dir: Path, moved_at: datetime | None) -> Path | None:
    """Give `part` its name; with `moved_at`, move what has that name aside, and say where to."""
    if moved_at is None:
        part.rename(data_dir)  # over an empty folder, if there is one
        fsync(data_dir.parent)
        return None
    run_in_thread = data_dir.with_name(f"{data_dir.name}.before-{moved_at:%Y%m%dT%H%M%S.%fZ}")
    data_dir.rename(run_in_thread)
    try:
        part.rename(data_dir)
    except BaseException:  # Ctrl-C, too, must not leave the service without any data dir
        if not data_dir.exists():
            run_in_thread.rename(data_dir)
        raise
    fsync(data_dir.parent)
    return run_in_thread
