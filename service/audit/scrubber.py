"""The scrubber: verifies stored files in the background, at a bounded rate.

Each live segment is compared with the digest in the catalog once in COUNTERSIGN_SCRUB_INTERVAL_S,
those that waited longest first: in a bucket the object itself. So are journal batches that wait
longer than usual, and this machine's copies of objects. What a request could not read is verified
at once. What is damaged is named by the log, metrics, `audit stats` and `/readyz` until it is whole
when verified again. It stops nothing else.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from analytics.storage.cache_folder import CachedFile
from analytics.storage.integrity import Finding
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from service.audit.leased_job import MeasuredJob
from service.core.threads import in_thread
from service.store.catalog import clear_index, list_by_id
from service.store.verification import (
    list_batches_at,
    list_damaged_ids,
    list_old_batches,
    list_unverified,
    set_batch_damage,
    set_verified,
)

ROUND_S: Final = 20.0
"""About how long a round reads. Its results are one commit: a restart repeats no more than that."""

FILES_MAX: Final = 256
"""The most files of a round, however small they are."""

BATCHES_MAX: Final = 64
"""The most journal batches that are read at once."""

JOURNAL_AGE: Final = timedelta(hours=1)
"""Younger batches are about to be sealed, which verifies them."""

_log = structlog.get_logger(__name__)


class Stopped(Exception):
    """The process ends: what is being read need not be read to its end."""


class Pace:
    """Keeps a reader to a rate, until it is stopped.

    `wait` waits so many seconds and says whether it was stopped meanwhile.
    """

    def __init__(self, bytes_per_s: float, wait: Callable[[float], bool] | None = None) -> None:
        self.bytes_per_s = bytes_per_s
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End all waiting."""
        self._stop.set()

    def __call__(self, size: int) -> None:
        """Wait as long as reading `size` bytes may take. Raises Stopped, also while it waits."""
        if self._wait(size / self.bytes_per_s) or self._stop.is_set():
            raise Stopped


@dataclass(eq=False)
class Scrubber(MeasuredJob):
    """Verifies under a lease of its own: one process of all nodes reads what is stored."""

    def __post_init__(self) -> None:
        self._interval = timedelta(seconds=self._settings.scrub_interval_s)
        self._verified_bytes = self._metrics.counter(
            "countersign_scrub_read_bytes", "Bytes of stored files that were verified."
        )
        self._damaged = self._metrics.counter(
            "countersign_scrub_damage",
            "Damaged files that the verification of what is stored found, by what is wrong.",
            "kind",
        )
        self.pace = Pace(self._settings.scrub_mb_per_s * 1e6)
        self._journal_began_at: datetime | None = None
        self._journal_seq = 0
        self._copies: dict[Path, datetime] = {}

    def stop(self) -> None:
        """End what is being verified; the results so far are kept."""
        self.pace.stop()

    async def scrub_due(self) -> bool:
        """Verify segments and journal batches that are due, for a round; True if more may be.

        Raises LeaseTaken while another process does it, StoreUnreachable.
        """
        due = await self._store.fetch(list_unverified, self._clock() - self._interval, FILES_MAX)
        batches = await self._old_batches()
        if self.pace.is_stopped or not (due or batches):
            return False
        async with self._lease.hold():
            # Again: another process may just have done it.
            due = await self._store.fetch(
                list_unverified, self._clock() - self._interval, FILES_MAX
            )
            try:
                await self._verify_batches(batches)
                if batches:
                    self._journal_seq = batches[-1].first_seq
                await self._verify_segments(due)
            except Stopped:
                return False
        return True

    async def verify_suspects(self) -> bool:
        """Verify what requests of this process could not read; True if there was anything.

        Without the lease: another process may be reading for hours, and what is recorded twice is
        the same. What is known to be damaged is not read again.
        """
        ids, seqs = self._lake.queries.suspects.take()
        if not ids and not seqs:
            return False
        async with self._store.read() as session:
            known = await list_damaged_ids(session)
            due = await list_by_id(session, [each for each in ids if each not in known])
            batches = await list_batches_at(session, seqs)
        try:
            await self._verify_batches(batches)
            await self._verify_segments(due)
        except Stopped:
            return False
        return True

    async def _verify_segments(self, due: Sequence[Segment]) -> None:
        """Verify `due` until the round is over, and note what was found, also after a failure."""
        found: list[tuple[Segment, Finding | None, Finding | None]] = []
        left = self.pace.bytes_per_s * ROUND_S
        try:
            for segment in due:
                found.append((segment, *await self._lake.verify(segment, self.pace)))
                self._verified_bytes.inc(segment.size + segment.index_size)
                left -= segment.size + segment.index_size
                if left <= 0:
                    break
        finally:
            if found:
                await self._record(found)

    async def _record(
        self, found: Sequence[tuple[Segment, Finding | None, Finding | None]]
    ) -> None:
        """One commit for the results of a round. A damaged index is built again by the indexer."""
        damage = {segment.segment_id: fault for segment, fault, _ in found}
        async with self._store.write() as work:
            live = await set_verified(work.session, damage, work.now)
            lost = [
                fault
                for segment, _, fault in found
                if fault is not None and await clear_index(work.session, segment)
            ]
        for segment, fault, _ in found:
            if fault is not None and segment.segment_id in live:
                self._report("segment_damaged", fault, self._lake.path_of(segment))
        for fault in lost:
            self._report("index_damaged", fault, None)

    def _report(self, event: str, fault: Finding, path: Path | None) -> None:
        self._damaged.labels(fault.kind).inc()
        _log.error(
            event,
            organisation=fault.tenant_id,
            day=str(fault.day),
            segment=fault.segment,
            kind=str(fault.kind),
            detail=fault.detail,
            **({} if path is None else {"path": str(path)}),
        )

    async def _old_batches(self) -> list[JournalBatch]:
        """The next batches that have waited long; from the first one again once in an interval."""
        now = self._clock()
        if self._journal_began_at is None or now - self._journal_began_at >= self._interval:
            self._journal_began_at, self._journal_seq = now, 0
        return await self._store.fetch(
            list_old_batches, self._journal_seq, now - JOURNAL_AGE, BATCHES_MAX
        )

    async def _verify_batches(self, batches: Sequence[JournalBatch]) -> None:
        if not batches:
            return
        damage = await self._lake.verify_batches(batches, self.pace)
        async with self._store.write() as work:
            seqs = [batch.first_seq for batch in batches]
            await set_batch_damage(work.session, seqs, damage)
        for fault in damage.values():
            self._report("journal_batch_damaged", fault, None)

    async def scrub_copies(self) -> bool:
        """Verify this machine's copies of objects that are due, for a round; True if more may be.

        A damaged copy is dropped, and fetched again when it is needed. Without the lease: each
        machine has its own. A restart begins again, with those that were fetched long ago.
        """
        since = self._clock() - self._interval
        copies = {copy.path: copy for copy in await in_thread(self._lake.segments.copies)}
        known = self._copies
        self._copies = {path: at for path, at in known.items() if path in copies and at > since}
        due = [copy for path, copy in copies.items() if path not in self._copies]
        due = [copy for copy in due if copy.written_ns < since.timestamp() * 1e9][:FILES_MAX]
        if self.pace.is_stopped or not due:
            return False
        async with self._store.read() as session:
            names = list(dict.fromkeys(copy.path.stem for copy in due))
            segments = {each.segment_id: each for each in await list_by_id(session, names)}
        try:
            for copy in due:
                await self._verify_copy(copy, segments.get(copy.path.stem))
        except Stopped:
            return False
        return True

    async def _verify_copy(self, copy: CachedFile, segment: Segment | None) -> None:
        # One that the catalog does not know any more is dropped by another job.
        if segment is not None and not await self._lake.verify_copy(copy, segment, self.pace):
            self._damaged.labels("damaged_copy").inc()
            _log.warning("copy_damaged", path=str(copy.path), segment=segment.segment_id)
        self._verified_bytes.inc(copy.size)
        self._copies[copy.path] = self._clock()
