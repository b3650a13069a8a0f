"""Progress of running exports: kept in memory, and written every few seconds while any runs.

So the list of exports shows how far each is, and one whose process has died is detected.
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from analytics.export.writers import Piece
from service.audit.export_entries import record_progress
from service.core.errors import StoreUnavailable
from service.store.store import Store

INTERVAL_S: Final = 5.0
"""Must be well below `export_entries.SILENT_AFTER`."""

_NOTHING: Final = Piece(b"", rows=0, size=0, sha256=hashlib.sha256().hexdigest())

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Progress:
    """How much of an export was sent: everything up to and including the piece `left`."""

    left: Piece = _NOTHING
    is_complete: bool = False


class ProgressWriter:
    """Writes the progress of this process's running exports.

    Also of those whose client stalls: they are not broken before their time limit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, Progress] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()

    def add(self, export_id: str, progress: Progress) -> None:
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
