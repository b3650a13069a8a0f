"""The importer: rows with a history of their own go straight into segments, each exactly once.

The journal has no part in it: it is for rows that somebody waits for. Files are written first,
all of them durable; one transaction then names them, gives their rows their place and remembers
the digest of what was imported.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import BinaryIO, Final

import structlog

from analytics.imports.readers import FileKind, read_chunks
from analytics.imports.segment_buffer import SegmentBuffer, import_steps
from analytics.imports.validation import Refused, RowImporter
from analytics.model.events import AuditImported
from analytics.model.retention import Tier, retention_floor
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import Stamp
from service.audit.lease import HeldLease, LeaseKeeper, LeaseTaken
from service.clock import Clock
from service.errors import Conflict
from service.lake import Lake
from service.store.catalog import add_segments
from service.store.imports import add_import, find_import
from service.store.journal import take_seq
from service.store.store import Store
from service.store.tables import ImportedFile, Organisation

_DIGEST_BYTES: Final = 8 * 1024 * 1024
_ASK_AGAIN_S: Final = 0.2

_log = structlog.get_logger(__name__)


class FileChanged(Conflict):
    """A file was written to while it was read."""

    text = "the file changed while it was read: nothing of it was imported"


@dataclass(frozen=True, slots=True)
class Source:
    """An open, seekable file, its size in bytes, and what people call it."""

    name: str
    file: BinaryIO
    size: int
    kind: FileKind


@dataclass(frozen=True, slots=True)
class Job:
    """One file for one organisation. `is_partial`: rows that are refused do not hold up others."""

    org: Organisation
    source: Source
    stamp: Stamp
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """Who wants to know how an import goes: bytes read so far, and every row that is refused."""

    on_progress: Callable[[int], None]
    on_refused: Callable[[list[Refused]], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file.

    `rows` are those it brought, `refused` those that were not taken. `known_since` is when the
    same bytes were imported before: this time nothing was written.
    """

    sha256: str
    rows: int = 0
    refused: int = 0
    days: tuple[date, ...] = ()
    known_since: datetime | None = None


class Importer:
    """Imports under the lease, so that any number of processes may run one."""

    def __init__(self, store: Store, lake: Lake, lease: LeaseKeeper, clock: Clock) -> None:
        self._store = store
        self._lake = lake
        self._lease = lease
        self._clock = clock

    async def take(self, job: Job, watch: Watch, wait_s: float) -> Imported:
        """Import the file, whole or not at all (but for what `job.is_partial` leaves out).

        Whoever has the lease is waited for, for `wait_s` seconds. Raises LeaseTaken, LeaseLost,
        FileChanged, UnreadableFile, StoreFault, StoreUnavailable; but for the last, nothing was
        imported then.
        """
        sha256 = await self._digest(job.source)
        if known := await self._find(job.org, sha256):
            return known
        async with self._hold(wait_s) as lease:
            if known := await self._find(job.org, sha256):  # by whoever had the lease before us
                return known
            segment_buffer = self._lake.segment_buffer(job.org.id)
            try:
                refused = await self._gather(lease, job, segment_buffer, watch)
                if await self._digest(job.source) != sha256:
                    raise FileChanged
            except BaseException:
                # No catalog line was ever asked for, so nobody can be reading these files.
                await self._lake.aside(segment_buffer.discard)
                raise
            result = _result(sha256, segment_buffer, refused)
            return await self._commit(lease, job, segment_buffer, result) if result.rows else result

    async def _find(self, org: Organisation, sha256: str) -> Imported | None:
        async with self._store.read() as session:
            known = await find_import(session, org.id, sha256)
        return None if known is None else Imported(sha256, known_since=known.imported_at)

    async def _digest(self, source: Source) -> str:
        digest = hashlib.sha256()
        source.file.seek(0)
        while content := await self._lake.aside(partial(source.file.read, _DIGEST_BYTES)):
            digest.update(content)
        return digest.hexdigest()

    @asynccontextmanager
    async def _hold(self, wait_s: float) -> AsyncIterator[HeldLease]:
        """The lease, as soon as it is free; a service takes it for moments, again and again."""
        give_up_at = time.monotonic() + wait_s
        async with AsyncExitStack() as stack:
            while True:
                try:
                    lease = await stack.enter_async_context(self._lease.hold())
                    break
                except LeaseTaken:
                    if time.monotonic() >= give_up_at:
                        raise
                await asyncio.sleep(_ASK_AGAIN_S)
            yield lease

    async def _gather(
        self, lease: HeldLease, job: Job, segment_buffer: SegmentBuffer, watch: Watch
    ) -> int:
        """Write the file's rows as segments that nobody names; how many rows were refused.

        A sweeper removes files without a name once they are older than the grace. However long
        this takes, it cannot take ours: it needs the lease, whose file lock is ours on this
        machine, and whose row is extended here before another machine could take it for lost.
        """
        now = extended_at = self._clock()
        window = AcceptedInterval(now, retention_floor(Tier(job.org.tier), now))
        row_importer = RowImporter(job.stamp, window)
        refused = 0
        chunks = read_chunks(job.source.file, job.source.size, job.source.kind)
        steps = import_steps(chunks, row_importer, segment_buffer, is_partial=job.is_partial)
        async for step in self._lake.steps(steps):
            refused += len(step.refused)
            watch.on_refused(step.refused)
            watch.on_progress(step.position)
            if self._clock() - extended_at > lease.lifetime / 4:
                extended_at = self._clock()
                await lease.extend()
        return refused

    async def _commit(
        self, lease: HeldLease, job: Job, segment_buffer: SegmentBuffer, result: Imported
    ) -> Imported:
        """Name every segment, place its rows and remember the digest, in one transaction.

        A crash before it leaves files that no catalog line names; after it, everything is there.
        When it fails the files are left to the sweeper: a commit that reports failure may still
        have happened.
        """
        async with lease.write() as work:
            known = await find_import(work.session, job.org.id, result.sha256)
            if known is not None:
                return Imported(result.sha256, known_since=known.imported_at)
            seq_base = await take_seq(work.session, result.rows)
            placed = [segment.with_seq_base(seq_base) for segment in segment_buffer.segments]
            await add_segments(work.session, placed, work.now)
            await add_import(
                work.session,
                ImportedFile(
                    tenant_id=job.org.id,
                    sha256=result.sha256,
                    name=job.source.name,
                    rows=result.rows,
                    refused=result.refused,
                    imported_at=work.now,
                ),
            )
            work.record(job.org.id, _told(job.source.name, result), job.stamp)
        _log.info("file_imported", rows=result.rows, sha256=result.sha256)
        return result


def _result(sha256: str, segment_buffer: SegmentBuffer, refused: int) -> Imported:
    days = sorted({segment.day for segment in segment_buffer.segments})
    return Imported(sha256, segment_buffer.rows, refused, tuple(days))


def _told(name: str, result: Imported) -> AuditImported:
    return AuditImported(
        source=name,
        rows=result.rows,
        refused=result.refused,
        sha256=result.sha256,
        first_day=str(result.days[0]),
        last_day=str(result.days[-1]),
    )
