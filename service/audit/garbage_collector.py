"""The sweeper: removes unused files and expired answers once no process can be using them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from analytics.storage.audit_files import is_swept
from service.audit.leased_job import LeasedJob
from service.audit.open_table.publisher import Publisher
from service.core.threads import in_thread
from service.store.catalog import delete_segments, list_retired, list_segment_ids
from service.store.idempotency import delete_expired_answers
from service.store.lease import SEAL, revoke
from service.store.segment_locks import list_locked_ids

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class GarbageCollector(LeasedJob):
    """Sweeps under the lease: files of a merge that has not ended look like orphans."""

    _open_tables: Publisher

    async def clear_orphans(self) -> int:
        """Remove files without a catalog line that are past the grace period; returns how many."""
        async with self._lease.hold() as lease:
            # Clock, files, claims, catalog, in this order. A segment that is committed meanwhile is
            # in the catalog, and its claim is released only after the commit. One that was young
            # when the files were listed stays, even if this process is paused for hours.
            now_s = await self._lake.clock_s(self._clock())
            grace_s = self._settings.orphan_grace_s
            listed = await self._lake.list_files()
            files = [file for file in listed if now_s - file.written_s > grace_s]
            claimed = await self._lake.claimed_segments(grace_s)
            known = await self._store.fetch(list_segment_ids)
            known |= claimed
            files = [file for file in files if is_swept(self._lake.segments.root, file.path, known)]
            if not files:
                return 0
            # A sealer has a lease of its own and makes no claim. One that was paused for longer
            # than the grace has committed by now, or will not: its rows are still in the journal.
            async with lease.write() as work:
                await revoke(work, SEAL)
            # Afterwards: others wait for the commit, and this process for the processor.
            known = await self._store.fetch(list_segment_ids)
            return await self._lake.remove_orphans(files, known, now_s, grace_s)

    async def drop_copies(self) -> int:
        """Drop this machine's copies of segments no longer in the catalog; returns how many files.

        Without the lease: each machine has its own. A new segment that is not in the catalog yet
        may lose its copy, and is fetched again.
        """
        segments = self._lake.segments
        copies = await in_thread(segments.copies)
        if not copies:
            return 0
        known = await self._store.fetch(list_segment_ids)
        return await in_thread(segments.drop_copies, copies, known)

    async def unlink_retired(self) -> int:
        """Remove the files of segments retired before the grace period; returns how many.

        Those that are locked are kept, with their line, until the lock ends. A file is removed
        before its line: a crash in between leaves a line without a file, which the next sweep
        finds. In the other order it would leave a file without a line.
        """
        before = await self._retired_before()
        if not await self._store.fetch(list_retired, before, self._clock()):
            return 0
        async with self._lease.hold() as lease:
            # Again under the lease, without which no table is published and no segment retired.
            before = await self._retired_before()
            async with self._store.read() as session:
                retired = await list_retired(session, before, self._clock())
                locked = await list_locked_ids(session, retired)
            retired = await self._open_tables.released(retired, self._clock())
            if not retired:
                return 0
            kept = await self._lake.remove_segments(retired, locked)
            retired = [segment for segment in retired if segment not in kept]
            async with lease.write() as work:
                unlinked = await delete_segments(work.session, retired)
        _log.info("segments_unlinked", segments=unlinked)
        if kept:
            _log.warning("segments_still_locked", segments=len(kept))
        return unlinked

    async def _retired_before(self) -> datetime:
        """Segments retired before this are needed by no query or export.

        Open tables keep theirs longer: until they are published without them, and until the
        snapshots before that have expired.
        """
        now = self._clock()
        before = now - timedelta(seconds=self._settings.retired_grace_s)
        published_at = await self._open_tables.published_before()
        if published_at is None:
            return before
        kept_for = timedelta(hours=self._settings.lake_snapshot_hours)
        # `kept_for` covers snapshots that still name them, `published_at` publications under way.
        return min(before, now - kept_for, published_at)

    async def delete_expired_answers(self) -> int:
        """Delete expired answers to idempotency keys, for a round; returns how many."""
        return await self._store.write_at_once(
            lambda work: delete_expired_answers(work.transaction, work.now)
        )
