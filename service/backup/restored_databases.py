"""Puts the database of a backup where the settings say."""

import asyncio
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, inspect

from analytics.storage.fsync import fsync
from service.audit.lease import end_leases
from service.backup.databases import is_postgresql
from service.backup.manifest import DATABASE, DUMP, Manifest
from service.backup.refusals import (
    BackupOfPostgresql,
    BackupOfSqlite,
    DatabaseElsewhere,
    DatabaseInTheWay,
)
from service.clock import utc_now
from service.settings import Settings
from service.store.engines import create_engines
from service.store.faults import store_faults
from service.store.sqlite.files import file_of, url_of
from service.store.store import Store


class RestoredDatabase(Protocol):
    """A database to restore. Leases in it are ended: their holders do not run here."""

    def put_in(self, part: Path) -> None:
        """Finish it in the folder that will be the data dir, where the backup's files are."""

    def fill(self, part: Path) -> None:
        """Change what is outside that folder: the last step before it gets its name."""


def restored_database(manifest: Manifest, settings: Settings) -> RestoredDatabase:
    """The database of a backup with `manifest`, checked to be restorable with `settings`.

    Raises BackupOfPostgresql, BackupOfSqlite, DatabaseElsewhere, DatabaseInTheWay,
    StoreUnavailable.
    """
    if manifest.is_postgresql != is_postgresql(settings):
        raise BackupOfPostgresql if manifest.is_postgresql else BackupOfSqlite
    if not manifest.is_postgresql:
        return _RestoredFile(settings)
    dump = _RestoredDump(settings)
    dump.check_empty()
    return dump


class _RestoredFile:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = file_of(settings.database)
        if self._file.parent != settings.data_dir:
            raise DatabaseElsewhere

    def put_in(self, part: Path) -> None:
        file = part / self._file.name
        (part / DATABASE).rename(file)
        asyncio.run(_end_leases(url_of(file), self._settings.database_wait_s))
        fsync(file)

    def fill(self, part: Path) -> None:
        """Nothing: it is in the folder."""


class _RestoredDump:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def put_in(self, part: Path) -> None:
        """Nothing: the dump is in the folder."""

    def fill(self, part: Path) -> None:
        from service.store.postgres.dump import restore

        self.check_empty()
        restore(self._settings.database, part / DUMP)
        asyncio.run(_end_leases(self._settings.database, self._settings.database_wait_s))
        (part / DUMP).unlink()

    def check_empty(self) -> None:
        """Raise DatabaseInTheWay if there is a table."""
        names = asyncio.run(_table_names(self._settings))
        if names:
            raise DatabaseInTheWay(value=min(names))


async def _table_names(settings: Settings) -> list[str]:
    engines = create_engines(settings.database, settings.database_wait_s)
    try:
        with store_faults():
            async with engines.reader.connect() as connection:
                return await connection.run_sync(lambda reading: inspect(reading).get_table_names())
    finally:
        await engines.dispose()


async def _end_leases(url: str | URL, wait_s: float) -> None:
    """Expire the leases in the backup: their holders do not run here."""
    store = Store(create_engines(url, wait_s), utc_now)
    try:
        async with store.write() as work:
            await end_leases(work)
    finally:
        await store.close()
