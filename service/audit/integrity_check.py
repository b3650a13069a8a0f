"""The integrity check: reads everything stored and compares it with the database.

The service may keep running. Files are listed before the catalog is read, so that a segment
committed in between is in the catalog. Catalog and journal are read in one transaction, so that a
row being sealed is in one of them. A missing file is a fault only if the catalog still lists it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import utc_day
from analytics.model.log_envelopes import AuditExportFinished
from analytics.storage.integrity import FaultKind, Finding, SeqSet, check_batches
from analytics.storage.segment_metadata import Segment
from service.audit.export_entries import list_ended
from service.audit.lake import Lake
from service.core.threads import in_thread
from service.store.catalog import is_live, list_live_segments, list_places
from service.store.journal import last_seq, list_batches, list_pending_days
from service.store.lost_segments import list_losses
from service.store.organisations import list_orgs
from service.store.store import Store
from service.store.tables import ExportEntry, Organisation
from service.store.transaction import within


@dataclass(slots=True)
class Report:
    """The findings, and how much was read.

    `notes` are not faults: rows that were given up, and files of unfinished work, or its remains,
    which sweeps remove.
    """

    slugs: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    rows: int = 0

    def line(self, finding: Finding) -> dict[str, Any]:
        """`finding` for output; `org` is the slug, or the tenant id if no organisation has it."""
        tenant_id = finding.tenant_id
        return {
            "segment": finding.segment,
            "org": None if tenant_id is None else self.slugs.get(tenant_id, tenant_id),
            "day": None if finding.day is None else finding.day.isoformat(),
            "kind": finding.kind.value,
            "detail": finding.detail,
            "remedy": finding.remedy,
        }


class ExportEnd(msgspec.Struct, frozen=True):
    """How an export ended."""

    export_id: str
    complete: bool | None
    rows: int
    bytes: int
    sha256: str | None

    def __str__(self) -> str:
        state = "complete" if self.complete else "broken off"
        return f"{state}, {self.rows} rows, {self.bytes} bytes, SHA-256 {self.sha256}"


@dataclass(slots=True)
class ExportEnds:
    """The ends of exports by the audit rows that were read, the last one of each export."""

    by_export: dict[str, tuple[int, ExportEnd]] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Look for ends of exports in `rows`."""
        is_end = pc.equal(rows.column("event"), AuditExportFinished.event)
        ends = rows.select(["seq", "payload"]).filter(is_end)
        for seq, payload in zip(*(column.to_pylist() for column in ends.columns), strict=True):
            # An imported row may have another payload, and tells of no export of this service.
            with suppress(msgspec.MsgspecError):
                end = msgspec.json.decode(payload, type=ExportEnd)
                if seq > self.by_export.get(end.export_id, (0, end))[0]:
                    self.by_export[end.export_id] = seq, end


@dataclass(eq=False)
class Check:
    """One check of one organisation (None: of all). It changes nothing.

    `on_progress` is called with the segment rows read so far and in total. With `is_quick` segments
    are not read: only whether they are stored, with their size, is checked.
    """

    _store: Store
    _lake: Lake
    _org: Organisation | None
    _on_progress: Callable[[int, int], None]
    is_quick: bool = False

    def __post_init__(self) -> None:
        self._tenant_id = None if self._org is None else self._org.id
        self._sizes: dict[Path, int] = {}
        self._seen = SeqSet()
        self._ends = ExportEnds()
        self._last_seq = 0
        self._sealed_rows = 0
        self._report = Report()

    async def run(self) -> Report:
        """Check everything stored."""
        files = await self._lake.list_files(self._tenant_id)
        self._sizes = {file.path: file.size for file in files} if self.is_quick else {}
        async with self._store.read() as session:
            self._report.slugs = {org.id: org.slug for org in await list_orgs(session)}
            self._last_seq = await within(session, last_seq)
            places = await list_places(session)
            segments = await list_live_segments(session, self._tenant_id)
            exports = await list_ended(session, self._tenant_id)
            losses = await list_losses(session, self._tenant_id)
            await self._check_journal(session)
        staying, swept = await self._lake.check_files(files, places)
        self._report.findings += staying
        self._report.notes += swept
        self._report.notes += [
            Finding(FaultKind.LOST_ROWS, loss.detail, loss.tenant_id, loss.day, loss.id)
            for loss in losses
        ]
        await self._check_segments(segments)
        self._report.findings += self._check_receipts(exports)
        return self._report

    async def _check_journal(self, session: AsyncSession) -> None:
        """Check day by day, so that only one day's batches are in memory."""
        for tenant_id, day, *_ in await list_pending_days(session):
            if self._tenant_id not in {None, tenant_id}:
                continue
            batches = await list_batches(session, tenant_id, day)
            self._report.findings += await in_thread(
                check_batches, tenant_id, batches, self._seen, self._ends.add
            )
            highest = max(batch.first_seq + batch.rows - 1 for batch in batches)
            self._report.findings += self._check_line(tenant_id, day, highest)
            self._report.batches += len(batches)
            self._report.rows += sum(batch.rows for batch in batches)

    async def _check_segments(self, segments: list[Segment]) -> None:
        total = sum(segment.rows for segment in segments)
        for segment in segments:
            if self.is_quick:
                findings = await self._check_listed(segment)
                self._advance(total, 0)
            else:
                read = partial(self._read_rows, total)
                findings = await self._lake.check_segment(segment, self._seen, read)
            if await self._is_gone(segment, findings):
                continue
            self._report.segments += 1
            self._report.findings += findings
            self._report.findings += self._check_line(
                segment.tenant_id, segment.day, segment.max_seq, segment.segment_id
            )

    async def _check_listed(self, segment: Segment) -> list[Finding]:
        """Compare the segment with the listing; one that was stored since then is asked for."""
        path = self._lake.path_of(segment)
        size = self._sizes.get(path)
        place = (segment.tenant_id, segment.day, segment.segment_id)
        if size is None and not await in_thread(self._lake.segments.is_there, path):
            return [Finding(FaultKind.MISSING_FILE, f"{path} is missing", *place)]
        if size not in {None, segment.size}:
            detail = f"{size} bytes instead of {segment.size}"
            return [Finding(FaultKind.WRONG_SIZE, detail, *place)]
        return []

    def _read_rows(self, total: int, rows: pa.Table) -> None:
        self._ends.add(rows)
        self._advance(total, rows.num_rows)

    def _advance(self, total: int, rows: int) -> None:
        self._report.rows += rows
        self._sealed_rows += rows
        self._on_progress(self._sealed_rows, total)

    async def _is_gone(self, segment: Segment, found: list[Finding]) -> bool:
        """True if the file is missing because the segment was retired and unlinked meanwhile."""
        if all(finding.kind is not FaultKind.MISSING_FILE for finding in found):
            return False
        return not await self._store.fetch(is_live, segment.segment_id)

    def _check_receipts(self, exports: Sequence[ExportEntry]) -> Iterator[Finding]:
        """Ended exports whose receipts differ from their audit rows, if these were read."""
        for export in exports:
            sent = export.is_complete, export.sent_rows, export.sent_bytes, export.sha256
            said = ExportEnd(export.id, *sent)
            _, recorded = self._ends.by_export.get(export.id, (0, said))
            if recorded != said:
                detail = f"the receipt of export {export.id}: {said}; its audit row: {recorded}"
                day = utc_day(export.started_at)
                yield Finding(FaultKind.WRONG_RECEIPT, detail, export.tenant_id, day)

    def _check_line(
        self, tenant_id: str, day: date, max_seq: int, segment_id: str | None = None
    ) -> Iterator[Finding]:
        """Faults of a line of the catalog or the journal, regardless of its rows."""
        if tenant_id not in self._report.slugs:
            detail = "no organisation has this id"
            yield Finding(FaultKind.UNKNOWN_TENANT, detail, tenant_id, day, segment_id)
        if max_seq > self._last_seq:
            # The counter will allocate it again, so that two rows would get the same id.
            detail = f"seq {max_seq} was never given out: the counter stands at {self._last_seq}"
            yield Finding(FaultKind.UNKNOWN_SEQ, detail, tenant_id, day, segment_id)
