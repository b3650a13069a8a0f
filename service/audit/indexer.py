"""The indexer: builds missing and damaged index files.

New segments are written with an index. It is missing for segments of older versions, and where a
disk has lost the file. Until it is rebuilt, queries read the rows instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from analytics.model.errors import StoreFault
from analytics.storage.segment_metadata import Segment
from service.audit.leased_job import LeasedJob
from service.store.catalog import (
    clear_index,
    is_live,
    list_live_segments,
    list_unindexed,
    set_index,
)
from service.store.lease import HeldLease

BUILDS_MAX: Final = 16
"""The most indexes built in one round, so that no other job waits for a year of days."""

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Indexer(LeasedJob):
    """Builds indexes under the lease, so that any number of processes may run an indexer."""

    _unreadable: set[str] = field(init=False, default_factory=set)
    """Unreadable segments; each process tries them once, not in every round."""

    async def build_missing(self) -> int:
        """Build indexes that are missing or were found damaged by a query; returns how many.

        Raises LeaseTaken while another process changes segments.
        """
        await self.report_damaged()
        missing = await self._store.fetch(list_unindexed, BUILDS_MAX + len(self._unreadable))
        wanted = [item for item in missing if item.segment_id not in self._unreadable]
        if not wanted:
            return 0
        async with self._lease.hold() as lease:
            return await self._build(lease, wanted[:BUILDS_MAX], lambda rows: None)

    async def report_damaged(self) -> None:
        """Have indexes that queries of this process could not read built again, by any process."""
        if damaged := self._lake.queries.take_damaged():
            async with self._store.write() as work:
                for segment in damaged:
                    await clear_index(work.session, segment)

    async def rebuild_all(
        self, tenant_id: str | None, show: Callable[[int, int], None]
    ) -> tuple[int, list[str]]:
        """Rebuild all indexes, of one organisation or of all; returns how many, and the failed ids.

        `show` is called with the rows read so far and in total. Raises LeaseTaken.
        """
        async with self._lease.hold() as lease:
            segments = await self._store.fetch(list_live_segments, tenant_id)
            total, done = sum(segment.rows for segment in segments), 0

            def advance(rows: int) -> None:
                nonlocal done
                done += rows
                show(done, total)

            built = await self._build(lease, segments, advance)
            return built, sorted(self._unreadable)

    async def _build(
        self, lease: HeldLease, segments: Sequence[Segment], advance: Callable[[int], None]
    ) -> int:
        """Write each file before its catalog entry: an index without an entry is also used."""
        built = 0
        for segment in segments:
            try:
                indexed = await self._lake.reindex(segment)
            except StoreFault as fault:
                # The rows are unreadable too; queries and `audit check` report that.
                self._unreadable.add(segment.segment_id)
                _log.error("index_not_built", segment=segment.segment_id, reason=str(fault))
            else:
                async with lease.write() as work:
                    # It may have been retired after it was listed and before the lease was taken.
                    if await is_live(work.session, segment.segment_id):
                        await set_index(work.session, indexed)
                        built += 1
            advance(segment.rows)
        _log.info("indexes_built", indexes=built)
        return built
