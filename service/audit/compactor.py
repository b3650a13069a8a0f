"""The compactor: merges the segments of a closed tenant-day into one.

A page of an old day then opens one file instead of dozens. As in the sealer, the new file is
written first, and then the catalog's lines are swapped in one commit. The old files are kept until
no reader can use them any more (see `service.audit.garbage_collector`).
"""

from datetime import datetime, timedelta
from typing import Final

import structlog

from analytics.model.instants import utc_day
from analytics.storage.compaction import MergeTooLarge
from analytics.storage.segment_metadata import Segment
from service.audit.leased_job import DeferredErrors, LeasedJob
from service.core.ids import new_id
from service.store.catalog import (
    SegmentedDay,
    add_segments,
    list_segmented_days,
    list_segments,
    list_unportable,
    retire_segments,
)
from service.store.lease import HeldLease, LeaseLost

MERGED_MAX: Final = 64
"""The most segments one merge reads; it holds all their files open."""

WAITING_MAX: Final = 16
"""This many segments make a closed day due even if late rows keep arriving."""

LARGE_TIMES: Final = 10
LATE_QUIET: Final = timedelta(days=1)
"""How long a day must be quiet if its largest segment has more than LARGE_TIMES the rows of the
others together: otherwise each late row would cause all its rows to be rewritten."""

_log = structlog.get_logger(__name__)


class Compactor(LeasedJob):
    """Merges under the lease, so that any number of processes may run a compactor."""

    async def compact_due(
        self, *, everything: bool = False, merges_max: int | None = None
    ) -> list[Segment]:
        """Merge closed days that are due, in at most `merges_max` merges; returns new segments.

        With `everything` a closed day is due as soon as it has two segments. Raises LeaseTaken
        while another process changes segments. A day that cannot be merged does not block the
        others: the first such fault is raised after all have been tried.
        """
        due = await self._list_due(everything=everything)
        if not due:
            return []
        merged: list[Segment] = []
        faults = DeferredErrors("day_not_merged")
        async with self._lease.hold() as lease, lease.renewed():
            for day in due:
                if len(merged) == merges_max:
                    break
                with faults.of(day.tenant_id, day.day):
                    while (segment := await self._merge_some(lease, day)) is not None:
                        merged.append(segment)
                        if len(merged) == merges_max:
                            break
        faults.raise_first()
        return merged

    async def make_portable(self, lease: HeldLease) -> int:
        """Rewrite the segments that other engines would misread, one by one; returns how many.

        The caller holds the lease. A segment that cannot be read does not block the others, and
        is left as it is.
        """
        segments = await self._store.fetch(list_unportable)
        faults = DeferredErrors("segment_not_rewritten")
        rewritten = 0
        for segment in segments:
            with faults.of(segment.tenant_id, segment.day):
                await self._replace(
                    lease, [segment], await self._lake.merge([segment], new_id("seg"))
                )
                rewritten += 1
        return rewritten

    async def _list_due(self, *, everything: bool) -> list[SegmentedDay]:
        now = self._clock()
        days = await self._store.fetch(list_segmented_days, before=utc_day(now))
        return [day for day in days if everything or self._is_due(day, now)]

    def _is_due(self, day: SegmentedDay, now: datetime) -> bool:
        if day.segments >= WAITING_MAX:
            return True
        quiet = timedelta(seconds=self._settings.compact_quiet_s)
        if day.rows_max > LARGE_TIMES * (day.rows - day.rows_max):
            quiet = max(quiet, LATE_QUIET)
        # Sealed later than now: the clock was set back, and could take years to catch up.
        return not now - quiet < day.last_sealed_at <= now

    async def _merge_some(self, lease: HeldLease, day: SegmentedDay) -> Segment | None:
        """Merge the day's smallest segments into one; None if only one merged segment is left.

        A crash before the commit leaves an orphan file and the old segments unchanged; the commit
        adds the new segment and hides the old ones together.
        """
        segments = await self._store.fetch(list_segments, day.tenant_id, day.day)
        smallest = sorted(segments, key=lambda segment: segment.rows)[:MERGED_MAX]
        # A segment with a seq base is rewritten even alone: other engines read the file directly.
        if len(smallest) < 2 and not any(segment.seq_base for segment in smallest):
            return None
        parts, merged = await self._merge_what_fits(smallest)
        await self._replace(lease, parts, merged)
        return merged

    async def _replace(self, lease: HeldLease, parts: list[Segment], merged: Segment) -> None:
        async with lease.write() as work:
            # A part that was merged or pruned meanwhile would come back as rows of the new segment.
            if await retire_segments(work.session, parts, work.now) != len(parts):
                raise LeaseLost("segments were retired by another process")
            await add_segments(work.session, [merged], work.now)
        _log.info("segments_merged", segment=merged.segment_id, of=len(parts), rows=merged.rows)

    async def _merge_what_fits(self, segments: list[Segment]) -> tuple[list[Segment], Segment]:
        """Merge as many of the first `segments` as memory allows; returns these and the new one.

        Two always fit, so a day ends as one segment regardless of its row sizes.
        """
        while True:
            try:
                return segments, await self._lake.merge(segments, new_id("seg"))
            except MergeTooLarge:
                segments = segments[: max(2, len(segments) // 2)]
