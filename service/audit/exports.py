"""Exports of rows: snapshotted, counted and audited before the first byte is sent."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from analytics.export.writers import FileEncoding, Piece
from analytics.model.filters import Query
from analytics.model.rows import AuditContext
from service.audit.export_entries import add_export, end_export, record_progress
from service.audit.lake import Lake
from service.audit.refusals import (
    TOO_MANY_EXPORTS,
    TOO_MANY_EXPORTS_OF_ALL,
    TOO_MANY_OWN_EXPORTS,
    QueryTooSlow,
)
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import StoreUnavailable
from service.core.ids import new_id
from service.core.settings import Settings
from service.core.version import service_version
from service.store.store import Store
from service.store.tables import ExportEntry, Organisation
from service.web.responses import begun

INTERVAL_S: Final = 5.0
"""Must be well below `export_entries.SILENT_AFTER`."""

_NOTHING: Final = Piece(b"", rows=0, size=0, sha256=hashlib.sha256().hexdigest())


@dataclass(slots=True)
class ExportProgress:
    """How much of an export was sent: everything up to and including the piece `left`."""

    left: Piece = _NOTHING
    is_complete: bool = False


class ProgressWriter:
    """Writes the progress of this process's running exports.

    Also of those whose client stalls: they are not broken before their time limit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, ExportProgress] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()

    def add(self, export_id: str, progress: ExportProgress) -> None:
        """Report `progress` from now on."""
        self._running[export_id] = progress
        self._is_idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_until_idle())

    def remove(self, export_id: str) -> None:
        """Stop reporting an export, which has ended."""
        self._running.pop(export_id, None)
        if not self._running:
            self._is_idle.set()

    async def drain(self) -> None:
        """Stop reporting."""
        self._is_idle.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_until_idle(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), INTERVAL_S)
            # Checked again: an export that began since the event was set needs this task.
            if self._is_idle.is_set():
                return
            await self.write()

    async def write(self) -> None:
        """Write the progress of all running exports once; a failure is logged."""
        sent = {export_id: progress.left for export_id, progress in self._running.items()}
        try:
            async with self._store.write() as work:
                await record_progress(work, sent)
        except StoreUnavailable as error:
            _log.warning("export_progress_not_written", exports=len(sent), reason=error.reason)


_PAUSES_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Pauses between attempts to record the end of an export."""

_log = structlog.get_logger(__name__)


class ExportBroken(Exception):
    """An export failed midway; the transfer must not appear complete."""


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A short file that is made already, of rows of `log`."""

    log: TenantLog
    rows: int
    content: bytes

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """All of it."""
        digest = hashlib.sha256(self.content).hexdigest()
        yield Piece(self.content, self.rows, len(self.content), digest)


@dataclass(frozen=True, slots=True)
class Export:
    """An export whose audit row is durable, ready to start. `rows` is the exact count.

    `started_at` is the time of its snapshot, and `fixed_at` the same by the monotonic clock.
    """

    export_id: str
    log: TenantLog
    query: Query
    encoding: FileEncoding
    rows: int
    audit_context: AuditContext
    started_at: datetime
    fixed_at: float
    made: MadeFile | None = None
    progress: ExportProgress = field(default_factory=ExportProgress)

    @property
    def window(self) -> tuple[datetime | None, datetime | None]:
        """The bounds that apply, the retention floor included."""
        within = self.log.within(self.query)
        return within.since, within.until

    @property
    def entry(self) -> ExportEntry:
        """Its line in the list of exports, as of its begin."""
        since, until = self.window
        by = self.audit_context
        return ExportEntry(
            id=self.export_id,
            tenant_id=self.log.org.id,
            actor=by.actor,
            actor_source=by.actor_source,
            verdict_source=by.verdict_source,
            request_id=by.request_id,
            format=self.encoding.format,
            compression=self.encoding.compression,
            is_raw=self.encoding.is_raw,
            filters=self.query.given,
            since=since,
            until=until,
            retention_floor=self.log.floor,
            watermark=self.log.snapshot.watermark,
            rows=self.rows,
            version=service_version(),
            started_at=self.started_at,
        )


class Exporter:
    """Starts exports, streams them and records their end.

    Limits the concurrent exports of this process, of each organisation, and of each of its actors.
    """

    def __init__(self, settings: Settings, store: Store, lake: Lake) -> None:
        self._settings = settings
        self._store = store
        self._lake = lake
        self._under_way: Counter[tuple[str, str]] = Counter()
        """By tenant id and actor."""

        self._progress = ProgressWriter(store)
        self._closing: set[asyncio.Task[None]] = set()
        self._is_last_call = asyncio.Event()

    async def prepare(
        self,
        org: Organisation,
        query: Query,
        encoding: FileEncoding,
        audit_context: AuditContext,
        now: datetime,
        made: MadeFile | None = None,
    ) -> Export:
        """Take the snapshot, count its rows and record the export; or that of a `made` file.

        The returned export must be started: it counts as running until it ends. Raises
        TOO_MANY_EXPORTS, TOO_MANY_OWN_EXPORTS, TOO_MANY_EXPORTS_OF_ALL, StoreFault,
        StoreUnavailable: an export that cannot be recorded is not made.
        """
        # Before anything is awaited: concurrent requests must not all find the slot free.
        self._take_slot(org.id, audit_context.actor)
        try:
            fixed_at = time.monotonic()
            log = made.log if made else await open_log(self._store, self._lake, org, now)
            export = Export(
                export_id=new_id("exp"),
                log=log,
                query=query,
                encoding=encoding,
                rows=made.rows if made else await log.count(query, self._settings.export_max_s),
                audit_context=audit_context,
                started_at=now,
                fixed_at=fixed_at,
                made=made,
            )
            await self._announce(export)
            self._progress.add(export.export_id, export.progress)
        except BaseException:
            self._free_slot(org.id, audit_context.actor)
            raise
        return export

    async def _announce(self, export: Export) -> None:
        """Record the export; if the client disconnects meanwhile, record that it ended empty."""
        recording = asyncio.create_task(self._record_begin(export))
        try:
            # Shielded: the commit goes on without the client, and an end must then follow it.
            await asyncio.shield(recording)
        except asyncio.CancelledError:
            self._run_in_background(self._end_unsent(export, recording))
            raise

    async def stream(self, export: Export) -> AsyncIterator[bytes]:
        """The content of the file in pieces; the first one is made before this returns.

        So an export that cannot start is refused with a status (StoreFault). If the client has
        already disconnected, the export has started and its end is recorded as usual.
        """
        return await begun(self._pieces(export))

    async def _pieces(self, export: Export) -> AsyncGenerator[bytes, None]:
        """The pieces of the file. In any case the end is recorded and the slot is freed.

        Raises ExportBroken or StoreFault midway, which closes the connection.
        """
        progress = export.progress
        # Measured from the snapshot: its files are kept for at least this long.
        ends_at = export.fixed_at + self._settings.export_max_s
        try:
            made = export.made
            file = (
                made.pieces() if made else export.log.export(export.query, export.encoding, ends_at)
            )
            async with aclosing(file) as pieces:
                async for piece in pieces:
                    yield piece.content
                    # After the yield: only what the server has taken counts as sent.
                    progress.left = piece
            if progress.left.rows != export.rows:
                raise ExportBroken(f"{progress.left.rows} rows came of {export.rows}")
            progress.is_complete = True
        except QueryTooSlow as error:
            raise ExportBroken("the export took too long") from error
        finally:
            self._free_slot(export.log.org.id, export.audit_context.actor)
            self._progress.remove(export.export_id)
            self._run_in_background(self._record_end(export))

    def _run_in_background(self, closing: Coroutine[None, None, None]) -> None:
        # A separate task: the current one may be cancelled because the client disconnected.
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def drain(self) -> None:
        """Wait until the end of every ended export is recorded, or logged if that fails."""
        self._is_last_call.set()
        await self._progress.drain()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _take_slot(self, tenant_id: str, actor: str) -> None:
        if self._under_way[tenant_id, actor] >= self._settings.exports_per_actor_max:
            raise TOO_MANY_OWN_EXPORTS
        of_org = sum(count for slot, count in self._under_way.items() if slot[0] == tenant_id)
        if of_org >= self._settings.exports_per_org_max:
            raise TOO_MANY_EXPORTS
        if self._under_way.total() >= self._settings.exports_max:
            raise TOO_MANY_EXPORTS_OF_ALL
        self._under_way[tenant_id, actor] += 1

    def _free_slot(self, tenant_id: str, actor: str) -> None:
        self._under_way[tenant_id, actor] -= 1
        if not self._under_way[tenant_id, actor]:
            del self._under_way[tenant_id, actor]

    async def _record_begin(self, export: Export) -> None:
        async with self._store.write() as work:
            await add_export(work, export.entry, export.audit_context)

    async def _end_unsent(self, export: Export, recording: asyncio.Task[None]) -> None:
        """Record an end without rows, if the start was recorded."""
        try:
            await recording
        except StoreUnavailable:
            return
        await self._record_end(export)

    async def _record_end(self, export: Export) -> None:
        """Record the end, with retries while the database is unavailable; failures are logged."""
        for pause_s in (*_PAUSES_S, None):
            try:
                await self._write_end(export)
            except StoreUnavailable as error:
                again_in_s = None if self._is_last_call.is_set() else pause_s
                _log.error(
                    "export_end_not_recorded",
                    export_id=export.export_id,
                    complete=export.progress.is_complete,
                    rows=export.progress.left.rows,
                    reason=error.reason,
                    again_in_s=again_in_s,
                )
            else:
                return
            if again_in_s is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_last_call.wait(), again_in_s)

    async def _write_end(self, export: Export) -> None:
        async with self._store.write() as work:
            await end_export(
                work,
                export.log.org.id,
                export.export_id,
                export.progress.left,
                export.audit_context,
                is_complete=export.progress.is_complete,
            )
