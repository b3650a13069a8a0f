"""Taking rows away: fixed, counted and audited before the first byte leaves."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from analytics.events import AuditExported, AuditExportFinished
from analytics.filters import Query
from analytics.formats import ExportFormat
from analytics.queries import Snapshot
from analytics.retention import Tier, retention_floor
from analytics.rows import Stamp
from service.ids import new_id
from service.lake import Lake
from service.store.journal import snapshot
from service.store.store import Store
from service.store.tables import Organisation


class ExportBroken(Exception):
    """An export that cannot be finished; the transfer must not look whole."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export that may begin: its audit row is durable. `rows` is the exact count."""

    export_id: str
    org: Organisation
    snapshot: Snapshot
    query: Query
    format: ExportFormat
    is_raw: bool
    rows: int
    stamp: Stamp


@dataclass(slots=True)
class _Progress:
    """What has left so far."""

    rows: int = 0
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    is_complete: bool = False


class Exporter:
    """Begins exports, streams them and records how they ended."""

    def __init__(self, store: Store, lake: Lake, time_max_s: float) -> None:
        self._store = store
        self._lake = lake
        self._time_max_s = time_max_s
        self._closing: set[asyncio.Task[None]] = set()

    async def begin(
        self,
        org: Organisation,
        query: Query,
        export_format: ExportFormat,
        stamp: Stamp,
        now: datetime,
        *,
        is_raw: bool,
    ) -> Export:
        """Fix and count the rows, and record that they are about to leave.

        Raises StoreFault, StoreUnavailable: what cannot be recorded is not exported.
        """
        within = query.not_before(retention_floor(Tier(org.tier), now))
        async with self._store.read() as session:
            rows_now = await snapshot(session, org.id)
        export = Export(
            export_id=new_id("exp"),
            org=org,
            snapshot=rows_now,
            query=within,
            format=export_format,
            is_raw=is_raw,
            rows=await self._lake.count(rows_now, within),
            stamp=stamp,
        )
        async with self._store.write() as work:
            work.record(
                org.id,
                AuditExported(
                    export_id=export.export_id,
                    format=export_format,
                    filters=query.given,
                    rows=export.rows,
                ),
                stamp,
            )
        return export

    async def start(self, export: Export) -> AsyncIterator[bytes]:
        """The file, piece by piece; its first piece is made before this returns.

        So an export that cannot even begin is refused with a status (StoreFault), and one whose
        client is gone already has begun, and its end is recorded like any other.
        """
        pieces = self._pieces(export)
        return _from(await anext(pieces), pieces)

    async def _pieces(self, export: Export) -> AsyncGenerator[bytes, None]:
        """The file's pieces. However they end, a row says so.

        Raises ExportBroken or StoreFault midway, which cuts the connection.
        """
        progress = _Progress()
        ends_at = time.monotonic() + self._time_max_s
        try:
            async for chunk, rows in self._lake.export(
                export.snapshot, export.query, export.format, is_raw=export.is_raw
            ):
                if time.monotonic() > ends_at:
                    raise ExportBroken("the export took too long")
                yield chunk
                progress.digest.update(chunk)
                progress.rows += rows
                progress.size += len(chunk)
            if progress.rows != export.rows:
                raise ExportBroken(f"{progress.rows} rows came of {export.rows}")
            progress.is_complete = True
        finally:
            # In a task of its own: the client may be gone and this one cancelled.
            closing = asyncio.create_task(self._record_end(export, progress))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def drain(self) -> None:
        """Wait until every export that ended is recorded."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _record_end(self, export: Export, progress: _Progress) -> None:
        async with self._store.write() as work:
            work.record(
                export.org.id,
                AuditExportFinished(
                    export_id=export.export_id,
                    complete=progress.is_complete,
                    rows=progress.rows,
                    bytes=progress.size,
                    sha256=progress.digest.hexdigest() if progress.is_complete else None,
                ),
                export.stamp,
            )


async def _from(first: bytes, others: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(others):
        yield first
        async for piece in others:
            yield piece
