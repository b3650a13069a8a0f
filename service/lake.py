"""The way from the event loop to the audit lake: the only module that sends work to threads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from analytics.batches import JournalBatch, decode_batches
from analytics.cursors import Position
from analytics.engine import Engine, EngineLimits
from analytics.exports import FileForm, Piece, export_pieces
from analytics.filters import Query
from analytics.orphans import remove_orphans, segment_files
from analytics.queries import Reader, Snapshot
from analytics.segments import Segment, write_segment
from service.settings import Settings

_Result = TypeVar("_Result")


class Lake:
    """The audit lake of one data dir. Every method may raise `analytics.engine.StoreFault`."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.audit_dir
        self._data_dir = settings.data_dir
        self._engine = Engine(
            settings.audit_dir,
            settings.temp_dir,
            EngineLimits(
                memory_mb=settings.engine_memory_mb,
                temp_mb=settings.engine_temp_mb,
                threads=settings.engine_threads,
            ),
        )
        self._reader = Reader(self._engine, settings.audit_dir)

    async def page(
        self, snapshot: Snapshot, query: Query, limit: int, after: Position | None
    ) -> pa.Table:
        """See `Reader.page`."""
        return await _in_thread(self._reader.page, snapshot, query, limit, after)

    async def count(self, snapshot: Snapshot, query: Query) -> int:
        """See `Reader.count`."""
        return await _in_thread(self._reader.count, snapshot, query)

    async def row(self, snapshot: Snapshot, seq: int, query: Query) -> pa.Table:
        """See `Reader.row`."""
        return await _in_thread(self._reader.row, snapshot, seq, query)

    async def export(
        self, snapshot: Snapshot, query: Query, form: FileForm
    ) -> AsyncIterator[Piece]:
        """The file of all rows of `query`, see `export_pieces`.

        A piece is made (read, encoded, hashed, compressed) when it is asked for, so a slow reader
        slows the making.
        """
        tables = self._reader.stream(snapshot, query)
        pieces = export_pieces(tables, snapshot.tenant_id, form)
        while (piece := await _in_thread(next, pieces, None)) is not None:
            yield piece

    async def seal(
        self, tenant_id: str, day: date, segment_id: str, batches: list[JournalBatch]
    ) -> Segment:
        """The rows of `batches` as one durable segment that no catalog names yet."""
        rows = await _in_thread(decode_batches, batches)
        return await self.store_rows(tenant_id, day, segment_id, rows)

    async def store_rows(
        self, tenant_id: str, day: date, segment_id: str, rows: pa.Table
    ) -> Segment:
        """See `write_segment`."""
        return await _in_thread(write_segment, self._root, tenant_id, day, segment_id, rows)

    async def aside(self, work: Callable[[], _Result]) -> _Result:
        """What `work`, a long computation on rows, comes to; the event loop goes on meanwhile."""
        return await _in_thread(work)

    async def segment_files(self) -> list[Path]:
        """Every file in the audit folder."""
        return await _in_thread(segment_files, self._root)

    async def remove_orphans(self, files: list[Path], known: set[str], before_s: float) -> int:
        """See `analytics.orphans.remove_orphans`."""
        return await _in_thread(remove_orphans, files, known, before_s)

    async def ping(self) -> None:
        """Raise OSError unless the data dir takes a file."""
        await _in_thread(_probe, self._data_dir / f".probe-{id(self):x}")

    def close(self) -> None:
        """Release what the engine holds."""
        self._engine.close()


async def _in_thread(function: Callable[..., _Result], *arguments: object) -> _Result:
    return await asyncio.to_thread(function, *arguments)


def _probe(path: Path) -> None:
    path.write_bytes(b"")
    path.unlink()
