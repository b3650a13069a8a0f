"""The database in a backup: a SQLite file, or a dump of PostgreSQL."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.storage.fsync import fsync
from analytics.storage.segment_metadata import Segment
from service.audit.backup.manifest import DATABASE, DUMP
from service.audit.services import OperatorServices
from service.audit.stats import storage_stats_by_tenant
from service.core.settings import Settings
from service.core.storage_stats import total_of
from service.core.threads import run_uncancellable
from service.store.catalog import list_live_segments
from service.store.engine_factory import create_engines
from service.store.migrate import schema_version_of
from service.store.sqlite.files import copy_database, file_of, url_of
from service.store.store import Store


@dataclass(frozen=True, slots=True)
class CopiedDatabase:
    """A copy as of one instant: its file, schema version, audit rows and live segments."""

    file: Path
    schema: str
    rows: int
    segments: list[Segment]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.file.stat().st_size


def is_postgresql(settings: Settings) -> bool:
    """True if the database is a server's, False if it is a file."""
    return make_url(settings.database).get_backend_name() == "postgresql"


async def copy_to(services: OperatorServices, part: Path) -> CopiedDatabase:
    """Copy the database durably to the folder `part`. Raises StoreUnavailable, PROGRAM_MISSING."""
    if is_postgresql(services.settings):
        return await _dump(services, part / DUMP)
    return await _copy_file(services, part / DATABASE)


async def _dump(services: OperatorServices, target: Path) -> CopiedDatabase:
    from service.store.postgres.dump import dump, exported_snapshot

    async with exported_snapshot(services.store) as (session, snapshot):
        # In the transaction whose snapshot the dump sees: both list the same segments.
        copied = await _contents(session, target)
        await dump(services.settings.database, snapshot, target)
    return copied


async def _copy_file(services: OperatorServices, target: Path) -> CopiedDatabase:
    settings = services.settings
    database = file_of(settings.database)
    await run_uncancellable(copy_database, database, target)
    copy = Store(create_engines(url_of(target), settings.database_wait_s), services.clock)
    try:
        async with copy.read() as session:
            copied = await _contents(session, target)
    finally:
        await copy.close()  # also removes SQLite's two side files
    fsync(target)  # SQLite may have written to it when the copy was closed
    return copied


async def _contents(session: AsyncSession, file: Path) -> CopiedDatabase:
    rows = total_of((await storage_stats_by_tenant(session)).values()).rows
    return CopiedDatabase(
        file, await schema_version_of(session), rows, await list_live_segments(session)
    )
