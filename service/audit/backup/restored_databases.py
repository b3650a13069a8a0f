"""Puts the database of a backup where the settings say."""

import asyncio
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, inspect

from analytics.storage.fsync import fsync
from service.audit.backup.databases import is_postgresql
from service.audit.backup.manifest import DATABASE, DUMP, Manifest
from service.audit.backup.refusals import (
    BackupOfPostgresql,
    BackupOfSqlite,
    DatabaseElsewhere,
    DatabaseInTheWay,
    DatabaseInUse,
)
from service.audit.installation import renew_installation
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.engine_factory import create_engines
from service.store.faults import store_faults
from service.store.lease import end_leases
from service.store.sqlite.files import file_of, url_of
from service.store.store import Store


class RestoredDatabase(Protocol):
    """A database to restore, as that of the installation with the id it is given.

    Leases in it are ended: their holders do not run here.
    """

    def put_in(self, part: Path, installation: str) -> None:
        """Finish it in the folder that will be the data dir, where the backup's files are."""

    def fill(self, part: Path, installation: str) -> None:
        """Change what is outside that folder: the last step before it gets its name."""


def restored_database(
    manifest: Manifest, settings: Settings, *, is_forced: bool
) -> RestoredDatabase:
    """The database of a backup with `manifest`, checked to be restorable with `settings`.

    With `is_forced` connections to a PostgreSQL database do not matter. Raises BackupOfPostgresql,
    BackupOfSqlite, DatabaseElsewhere, DatabaseInTheWay, DatabaseInUse, StoreUnavailable.
    """
    if manifest.is_postgresql != is_postgresql(settings):
        raise BackupOfPostgresql if manifest.is_postgresql else BackupOfSqlite
    if not manifest.is_postgresql:
        return _RestoredFile(settings)
    dump = _RestoredDump(settings, is_forced=is_forced)
    dump.check()
    return dump


class _RestoredFile:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = file_of(settings.database)
        if self._file.parent != settings.data_dir:
            raise DatabaseElsewhere

    def put_in(self, part: Path, installation: str) -> None:
        file = part / self._file.name
        (part / DATABASE).rename(file)
        asyncio.run(_begin(url_of(file), self._settings.database_wait_s, installation))
        fsync(file)

    def fill(self, part: Path, installation: str) -> None:
        """Nothing: it is in the folder."""


class _RestoredDump:
    def __init__(self, settings: Settings, *, is_forced: bool) -> None:
        self._settings = settings
        self._is_forced = is_forced
        self._own: set[int] = set()
        """The server's processes for our own connections: they end a moment after those."""

    def put_in(self, part: Path, installation: str) -> None:
        """Nothing: the dump is in the folder."""

    def fill(self, part: Path, installation: str) -> None:
        from service.store.postgres.dump import restore

        self.check()
        restore(self._settings.database, part / DUMP)
        url, wait_s = self._settings.database, self._settings.database_wait_s
        asyncio.run(_begin(url, wait_s, installation))
        (part / DUMP).unlink()

    def check(self) -> None:
        """Raise DatabaseInUse if another process is connected, DatabaseInTheWay for a table.

        A service may be connected to an empty database: one that was dropped and created again.
        """
        names, others = asyncio.run(self._look())
        if others and not self._is_forced:
            raise DatabaseInUse(value=str(others))
        if names:
            raise DatabaseInTheWay(value=min(names))

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


async def _begin(url: str | URL, wait_s: float, installation: str) -> None:
    """Expire the leases in the backup, and give the restored installation its own id.

    It is not the one that was backed up, which may still be running.
    """
    store = Store(create_engines(url, wait_s), utc_now)
    try:
        async with store.write() as work:
            await end_leases(work)
            await renew_installation(work.session, installation)
    finally:
        await store.close()
