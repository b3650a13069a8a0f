"""The indexer: builds index files that are missing or turned out damaged.

New segments come with theirs. What is left are segments of a version that wrote none, and files
that a disk has lost: until they are rebuilt, queries read the rows instead.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from analytics.model.errors import StoreFault
from analytics.storage.segment_metadata import Segment
from service.audit.lease import HeldLease, LeaseKeeper
from service.lake import Lake
from service.store.catalog import is_live, list_live_segments, list_unindexed, set_index
from service.store.store import Store

BUILDS_MAX: Final = 16
"""Indexes that are built in one round: sealing must not wait for those of a year of days."""

_log = structlog.get_logger(__name__)


class Indexer:
    """Builds indexes under the lease, so that any number of processes may run one."""

    def __init__(self, store: Store, lake: Lake, lease: LeaseKeeper) -> None:
        self._store = store
        self._lake = lake
        self._lease = lease
        self._unreadable: set[str] = set()
        """Segments that could not be read: tried once by each process, not in every round."""

    async def build_missing(self) -> int:
        """Build indexes that the catalog does not name, or that a query found damaged; how many.

        Raises LeaseTaken while another process changes segments.
        """
        async with self._store.read() as session:
            missing = await list_unindexed(session, BUILDS_MAX + len(self._unreadable))
        found = [*self._lake.damaged(), *missing]
        wanted = {one.segment_id: one for one in found if one.segment_id not in self._unreadable}
        if not wanted:
            return 0
        async with self._lease.hold() as lease:
            return await self._build(lease, list(wanted.values())[:BUILDS_MAX], lambda rows: None)

    async def rebuild_all(
        self, tenant_id: str | None, show: Callable[[int, int], None]
    ) -> tuple[int, list[str]]:
        """Build every index anew, of one organisation or of all; how many, and which it could not.

        `show` is told how many rows were read, and how many there are. Raises LeaseTaken.
        """
        async with self._lease.hold() as lease:
            async with self._store.read() as session:
                segments = await list_live_segments(session, tenant_id)
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
        """The file first, then its catalog entry: an index without one is used all the same."""
        built = 0
        for segment in segments:
            try:
                indexed = await self._lake.reindex(segment)
            except StoreFault as fault:
                # The rows cannot be read either; queries and `audit check` say so.
                self._unreadable.add(segment.segment_id)
                _log.error("index_not_built", segment=segment.segment_id, reason=str(fault))
            else:
                async with lease.write() as work:
                    if await is_live(work.session, segment.segment_id):
                        await set_index(work.session, indexed)
                        built += 1
            advance(segment.rows)
        _log.info("indexes_built", indexes=built)
        return built
