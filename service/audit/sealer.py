"""The sealer: moves journal rows into segments.

Nothing waits for it: queries read both journal and segments. So a tenant-day stays in the journal
until it has enough rows for a file, or its oldest row has waited long enough.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final

import structlog

from analytics.model.errors import StoreFault
from analytics.model.instants import utc_day
from analytics.storage.journal_batches import CorruptBatch, JournalPart, in_parts, intact
from analytics.storage.segment_metadata import Segment
from service.audit.leased_job import DeferredErrors, LeasedJob
from service.audit.refusals import JournalFull
from service.core.errors import StoreUnavailable
from service.core.ids import new_id
from service.core.settings import Settings
from service.store.catalog import add_segments
from service.store.journal import JournalSize, list_batches, list_pending_days, remove_batches
from service.store.lease import HeldLease, LeaseLost

BATCH_ROWS: Final = 16
"""The minimum average of rows per batch in a full journal."""

BATCHES_MIN: Final = 16_384
"""Batches that may wait regardless of the row limit: more than one request adds beyond the number
that makes days due. Otherwise a journal of single rows could be full before it is sealed."""

ROW_BYTES: Final = 512
"""The maximum average memory of a row in a full journal. Most rows take half of it, but a row can
have an envelope of kilobytes, and a query decodes all of them."""

BYTES_MIN: Final = 128 * 2**20
"""Bytes that may wait regardless of the row limit, with the same margin as BATCHES_MIN."""


def check_journal_room(waiting: JournalSize, added: JournalSize, rows_max: int) -> None:
    """Raise JournalFull if what is `added` does not fit beside what is `waiting`."""
    if (
        waiting.rows + added.rows > rows_max
        # Each batch is read and decoded separately, and rows of many days are many batches.
        or waiting.batches + added.batches > max(rows_max // BATCH_ROWS, BATCHES_MIN)
        or waiting.bytes + added.bytes > max(rows_max * ROW_BYTES, BYTES_MIN)
    ):
        raise JournalFull


SEGMENT_ROWS_MAX: Final = 1_000_000
SEGMENT_BYTES_MAX: Final = 256 * 2**20
"""Limits of one segment: rows, and their bytes. What is decoded at once must fit in memory even if
rows are as long as requests."""

BATCHES_MAX: Final = 1_000
"""Batches that make a tenant-day due regardless of its rows: queries decode each of them."""

BYTES_MAX: Final = SEGMENT_BYTES_MAX // 4
"""Bytes in memory that make a tenant-day due regardless of its rows."""

TOGETHER_MAX: Final = 16
"""Days that are sealed with one commit, which keeps other writers waiting."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PendingDay:
    """A tenant-day with rows in the journal; `since` is when the oldest was received."""

    tenant_id: str
    day: date
    size: JournalSize
    since: datetime

    def is_due(self, settings: Settings, now: datetime) -> bool:
        """True if the day is large or has waited long enough."""
        has_waited = now - self.since >= timedelta(seconds=settings.seal_age_s)
        # Rows received later than now: the clock was set back, and how long they wait is unknown.
        is_over = self.since > now and self.day < utc_day(now)
        return has_waited or is_over or is_large(self.size, settings.seal_rows)


def is_large(size: JournalSize, seal_rows: int) -> bool:
    """True for a journal that is worth a file, or slow for queries to decode."""
    return size.rows >= seal_rows or size.batches >= BATCHES_MAX or size.bytes >= BYTES_MAX


def _total(sizes: Sequence[JournalSize]) -> JournalSize:
    return JournalSize(
        sum(size.rows for size in sizes),
        sum(size.batches for size in sizes),
        sum(size.bytes for size in sizes),
    )


def due_days(pending: Iterable[PendingDay], settings: Settings, now: datetime) -> list[PendingDay]:
    """The `pending` days that are due, and all small days of a tenant that are large together.

    A snapshot reads a tenant's whole journal, so rows spread over many days must not make it
    longer. Large days do not make small ones due: each of those becomes a file, too.
    """
    due: list[PendingDay] = []
    small: dict[str, list[PendingDay]] = defaultdict(list)
    for day in pending:
        (due if day.is_due(settings, now) else small[day.tenant_id]).append(day)
    for days in small.values():
        if is_large(_total([day.size for day in days]), settings.seal_rows):
            due += days
    return due


def together(days: Iterable[PendingDay]) -> Iterator[list[PendingDay]]:
    """`days` in runs of at most TOGETHER_MAX, and of BYTES_MAX in memory (or one day)."""
    run: list[PendingDay] = []
    for day in days:
        size = sum(each.size.bytes for each in run) + day.size.bytes
        if run and (len(run) == TOGETHER_MAX or size > BYTES_MAX):
            yield run
            run = []
        run.append(day)
    if run:
        yield run


@dataclass(eq=False)
class Sealer(LeasedJob):
    """Seals under a lease of its own, so that any number of processes may run a sealer.

    `wanted` is set when a journal has become large enough to be sealed.
    """

    wanted: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    async def seal_due(self, *, everything: bool = False) -> list[Segment]:
        """Seal each tenant-day that is due (all with `everything`); returns the new segments.

        Raises LeaseTaken while another process seals. A day that cannot be sealed does not block
        the others: the first such fault is raised after all have been tried.
        """
        due = await self._list_due(everything=everything)
        if not due:
            return []
        segments: list[Segment] = []
        faults = DeferredErrors("day_not_sealed")
        # Renewed: to store the files of many days in a bucket can take longer than it lasts.
        async with self._lease.hold() as lease, lease.renewed():
            for days in together(due):
                segments += await self._seal_days(lease, days, faults)
        faults.raise_first()
        return segments

    async def _list_due(self, *, everything: bool) -> list[PendingDay]:
        async with self._store.read() as session:
            pending = [PendingDay(*line) for line in await list_pending_days(session)]
        return pending if everything else due_days(pending, self._settings, self._clock())

    async def _seal_days(
        self, lease: HeldLease, days: list[PendingDay], faults: DeferredErrors
    ) -> list[Segment]:
        """Seal `days` together, or each on its own if that fails: one of them may be at fault."""
        if len(days) > 1:
            # What has been committed is not in the journal any more, and not sealed again.
            with suppress(StoreFault, StoreUnavailable):
                return await self._seal_together(lease, days)
        segments: list[Segment] = []
        for day in days:
            with faults.of(day.tenant_id, day.day):
                segments += await self._seal_day(lease, day)
        return segments

    async def _seal_together(self, lease: HeldLease, days: list[PendingDay]) -> list[Segment]:
        parts: list[JournalPart] = []
        for day in days:
            whole, faults = await self._parts(day)
            if faults:
                raise faults[0]
            parts += whole
        return await self._seal_parts(lease, parts) if parts else []

    async def _seal_day(self, lease: HeldLease, pending: PendingDay) -> list[Segment]:
        parts, faults = await self._parts(pending)
        segments = [segment for part in parts for segment in await self._seal_parts(lease, [part])]
        # In a segment its rows would be as good as any: it stays where the fault is found.
        if faults:
            raise faults[0] if len(faults) == 1 else CorruptBatch("; ".join(map(str, faults)))
        return segments

    async def _parts(self, pending: PendingDay) -> tuple[list[JournalPart], list[CorruptBatch]]:
        batches = await self._store.fetch(list_batches, pending.tenant_id, pending.day)
        whole, faults = await self._lake.run_in_thread(intact, batches)
        parts = await self._lake.run_in_thread(in_parts, whole, SEGMENT_ROWS_MAX, SEGMENT_BYTES_MAX)
        place = pending.tenant_id, pending.day
        return [JournalPart(*place, new_id("seg"), part) for part in parts], faults

    async def _seal_parts(self, lease: HeldLease, parts: list[JournalPart]) -> list[Segment]:
        """Write the files, then remove the journal rows and add the segments in one commit.

        A crash before the commit leaves orphan files and the journal unchanged; the files are
        durable before the commit. If the commit fails, they are left to the sweeper: a commit
        that reports failure may still have happened.
        """
        segments = await self._lake.seal(parts)
        async with lease.write() as work:
            for part in parts:
                # Rows that another process has sealed meanwhile would be in two segments.
                if await remove_batches(work.session, part.batches) != len(part.batches):
                    raise LeaseLost("journal rows were sealed by another process")
            await add_segments(work.session, segments, work.now)
        for segment in segments:
            _log.info("segment_sealed", segment=segment.segment_id, rows=segment.rows)
        return segments
