"""The importer: writes rows of an existing history directly into segments, exactly once.

The journal is not involved: it is for rows whose sender waits for the commit. All files are written
and durable first. One transaction then adds them to the catalog, assigns seq numbers and stores the
digest of the imported file. Only this transaction needs the lease, so sealing continues during a
long import.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import BinaryIO, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.imports.chunks import FileKind
from analytics.imports.readers import read_chunks
from analytics.imports.segment_buffer import SegmentBuffer, import_steps
from analytics.imports.validation import Refused, RowImporter
from analytics.model.log_envelopes import AuditImported
from analytics.model.retention import Tier, retention_floor
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import Overtaken
from service.audit.lake import Lake
from service.audit.leased_job import LeasedJob
from service.core.clock import Clock
from service.core.errors import Conflict, Refusal
from service.core.ids import new_id
from service.core.threads import run_uncancellable
from service.store.catalog import add_segments
from service.store.journal import record_misdated, take_seq
from service.store.lease import HeldLease, LeaseTaken
from service.store.store import UnitOfWork
from service.store.tables import ImportedFile, Organisation
from service.store.transaction import within

_RENEWALS: Final = 4
"""How often files are renewed within the grace period of orphans."""


class FileImportOvertaken(Refusal):
    """The import was paused for so long that its files were removed as orphans."""

    status = 503
    is_temporary = True
    text = (
        "files of this import were removed before it could commit: it was paused for longer than"
        " COUNTERSIGN_ORPHAN_GRACE_S; import the file again"
    )


class UnnamedFiles:
    """The segments in `buffer`, which are not in the catalog yet.

    To the sweeper such files are orphans: it removes those last modified before the grace period.
    An import may take longer and does not hold the lease, so it renews its claim on them: in a
    folder their modification times, in an object store an object that lists them. If it is killed
    the renewal ends, and the files are swept.
    """

    def __init__(self, lake: Lake, clock: Clock, grace_s: float, tenant_id: str) -> None:
        self._claim = lake.segments.claim(grace_s)
        self.buffer = SegmentBuffer(self._claim, tenant_id, lambda: new_id("seg"))
        self._clock = clock
        self._renew_after = timedelta(seconds=grace_s / _RENEWALS)
        self._renewed_at = clock()

    async def keep(self) -> None:
        """Renew the files if that is due. Raises FileImportOvertaken if one is missing."""
        if self._clock() - self._renewed_at > self._renew_after:
            await self.confirm()

    async def confirm(self) -> None:
        """Renew the files. Raises FileImportOvertaken if one is missing.

        Under the lease they are kept from then on. Even a process that has lost the lease without
        noticing, and continues a sweep begun earlier, finds them newer than its limit.
        """
        self._renewed_at = self._clock()
        try:
            segments, now_s = self.buffer.segments, self._renewed_at.timestamp()
            await run_uncancellable(self._claim.renew, segments, now_s)
        except Overtaken as error:
            raise FileImportOvertaken from error

    async def discard(self) -> None:
        """Remove the files, which were never added to the catalog."""
        await run_uncancellable(self.buffer.discard)
        await self.release()

    async def release(self) -> None:
        """End the claim on the files: the catalog names them, or they were removed."""
        await run_uncancellable(self._claim.release)


_DIGEST_BYTES: Final = 8 * 1024 * 1024
_ASK_AGAIN_S: Final = 0.2

_log = structlog.get_logger(__name__)


FILE_CHANGED: Final = Conflict.of("the file changed while it was read: nothing of it was imported")


IMPORT_TOO_LONG: Final = Conflict.of(
    "the import took longer than {seconds} s and nothing was imported: split the file, or raise"
    " COUNTERSIGN_IMPORT_MAX_S"
)


@dataclass(frozen=True, slots=True)
class ImportFile:
    """An open, seekable file with its size in bytes and its display name."""

    name: str
    file: BinaryIO
    size: int
    kind: FileKind


@dataclass(frozen=True, slots=True)
class ImportJob:
    """One file for one organisation. With `is_partial`, refused rows do not block the others."""

    org: Organisation
    source: ImportFile
    audit_context: AuditContext
    is_partial: bool


@dataclass(frozen=True, slots=True)
class ImportWatch:
    """Callbacks of an import: the bytes read so far, and the refused rows."""

    on_progress: Callable[[int], None]
    on_refused: Callable[[list[Refused]], None]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of importing a file.

    `rows` counts imported rows, `refused` refused ones. `known_since` is set if the same bytes were
    imported before, at that time; then nothing was written.
    """

    sha256: str
    rows: int = 0
    refused: int = 0
    days: tuple[date, ...] = ()
    known_since: datetime | None = None


class Importer(LeasedJob):
    """Imports and commits under the lease, so that any number of processes may run one."""

    async def take(self, job: ImportJob, watch: ImportWatch, wait_s: float) -> ImportResult:
        """Import the file completely, apart from rows that `job.is_partial` skips, or not at all.

        Waits for the lease for `wait_s` seconds, or as long as the import took so far if that is
        longer. Raises LeaseTaken, LeaseLost, FileImportOvertaken, FILE_CHANGED, IMPORT_TOO_LONG,
        UnreadableFile, StoreFault, StoreUnavailable; nothing was imported then, except perhaps for
        the last one.
        """
        sha256 = await self._digest(job.source)
        if known := await self._find(job.org, sha256):
            return known
        await self._lake.confirm_prefix()
        began_at = time.monotonic()
        files = UnnamedFiles(self._lake, self._clock, self._settings.orphan_grace_s, job.org.id)
        async with AsyncExitStack() as stack:
            try:
                refused = await self._gather(job, files, watch)
                # Read again: the digest must be that of the bytes that were imported.
                if await self._digest(job.source, files) != sha256:
                    raise FILE_CHANGED
                result = _result(sha256, files.buffer, refused)
                if not result.rows:
                    return result
                give_up_at = time.monotonic() + max(wait_s, time.monotonic() - began_at)
                lease = await self._take_lease(stack, files, give_up_at)
                # Under the lease nothing is swept, so existing files are kept until the commit.
                await files.confirm()
                await self._lake.confirm_prefix()
            except BaseException:
                # The files were never added to the catalog, so they have no readers.
                await files.discard()
                raise
            return await self._commit(lease, job, files, result)

    async def _find(self, org: Organisation, sha256: str) -> ImportResult | None:
        known = await self._store.fetch(find_import, org.id, sha256)
        return None if known is None else ImportResult(sha256, known_since=known.imported_at)

    async def _digest(self, source: ImportFile, files: UnnamedFiles | None = None) -> str:
        digest = hashlib.sha256()
        source.file.seek(0)
        while content := await self._lake.run_in_thread(source.file.read, _DIGEST_BYTES):
            digest.update(content)
            if files is not None:
                await files.keep()
        return digest.hexdigest()

    async def _take_lease(
        self, stack: AsyncExitStack, files: UnnamedFiles, give_up_at: float
    ) -> HeldLease:
        """Wait for the lease; a service holds it repeatedly for short times."""
        while True:
            try:
                return await stack.enter_async_context(self._lease.hold())
            except LeaseTaken:
                if time.monotonic() >= give_up_at:
                    raise
            await asyncio.sleep(_ASK_AGAIN_S)
            await files.keep()

    async def _gather(self, job: ImportJob, files: UnnamedFiles, watch: ImportWatch) -> int:
        """Write the rows as segments outside the catalog; returns the number of refused rows."""
        now = self._clock()
        window = AcceptedInterval(now, retention_floor(Tier(job.org.tier), now))
        row_importer = RowImporter(job.audit_context, window)
        refused = 0
        limits = self._settings
        gives_up_at = time.monotonic() + limits.import_max_s
        source = job.source
        chunks = read_chunks(source.file, source.size, source.kind, limits.import_rows_max)
        steps = import_steps(chunks, row_importer, files.buffer, is_partial=job.is_partial)
        async for step in self._lake.iterate_in_thread(steps):
            refused += len(step.refused)
            watch.on_refused(step.refused)
            watch.on_progress(step.position)
            if time.monotonic() > gives_up_at:
                raise IMPORT_TOO_LONG(seconds=f"{limits.import_max_s:g}")
            await files.keep()
        return refused

    async def _commit(
        self, lease: HeldLease, job: ImportJob, files: UnnamedFiles, result: ImportResult
    ) -> ImportResult:
        """Add the segments to the catalog, with seq numbers and the digest, in one transaction.

        If another process has imported the same bytes meanwhile, our files are removed. A crash
        before the commit leaves files without a catalog line. If the commit fails, the files are
        left to the sweeper: a commit that reports failure may still have happened.
        """
        async with lease.write() as work:
            # Again, under the write lock: the same bytes may have been imported meanwhile.
            known = await find_import(work.session, job.org.id, result.sha256)
            if known is None:
                await _name(work, job, files.buffer.segments, result)
        if known is not None:
            await files.discard()
            return ImportResult(result.sha256, known_since=known.imported_at)
        await files.release()
        _log.info("file_imported", rows=result.rows, sha256=result.sha256)
        return result


async def _name(
    work: UnitOfWork, job: ImportJob, segments: Sequence[Segment], result: ImportResult
) -> None:
    """Add the segments to the catalog, and record the import."""
    allocated = await take_seq(work.session, result.rows, work.now)
    placed = [segment.with_seq_base(*allocated) for segment in segments]
    await add_segments(work.session, placed, allocated.received_at)
    days = {(segment.tenant_id, segment.day) for segment in placed}
    await within(work.session, record_misdated, days, allocated.received_at, work.now)
    # From the commit on, the same bytes are not imported again.
    work.session.add(
        ImportedFile(
            tenant_id=job.org.id,
            sha256=result.sha256,
            name=job.source.name,
            rows=result.rows,
            refused=result.refused,
            imported_at=work.now,
        )
    )
    await work.session.flush()
    work.record(job.org.id, _envelope(job.source.name, result), job.audit_context)


def _result(sha256: str, segment_buffer: SegmentBuffer, refused: int) -> ImportResult:
    days = sorted({segment.day for segment in segment_buffer.segments})
    return ImportResult(sha256, segment_buffer.rows, refused, tuple(days))


def _envelope(name: str, result: ImportResult) -> AuditImported:
    return AuditImported(
        source=name,
        rows=result.rows,
        refused=result.refused,
        sha256=result.sha256,
        first_day=str(result.days[0]),
        last_day=str(result.days[-1]),
    )


async def find_import(session: AsyncSession, tenant_id: str, sha256: str) -> ImportedFile | None:
    """The import of a file with these bytes into this organisation, or None."""
    return await session.get(ImportedFile, (tenant_id, sha256))
