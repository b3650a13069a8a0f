"""Stores, changes and checks the files of the audit lake for the event loop, in threads."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from analytics.model.errors import StoreFault
from analytics.storage.cache_folder import CachedFile, CacheObserver
from analytics.storage.compaction import merge_segments
from analytics.storage.integrity import (
    Finding,
    SeqSet,
    check_batches,
    check_files,
    check_segment,
    verify_stored,
    verify_stored_index,
)
from analytics.storage.journal_batches import JournalBatch, JournalPart, decode_batches
from analytics.storage.reindex import reindex
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import SegmentStore, StoredFile
from analytics.storage.segment_writer import NewSegment
from analytics.storage.verified_files import DamagedFile, no_wait
from service.audit.installation import PrefixGuard, open_segments
from service.audit.lake_queries import LakeQueries
from service.core.errors import file_fault
from service.core.fair_queue import TurnObserver
from service.core.settings import Settings
from service.core.threads import in_thread, new_pool, run_uncancellable

_Result = TypeVar("_Result")
_Step = TypeVar("_Step")
CONFIRMED_S: Final = 60.0
"""For this time the prefix of a bucket is written to without asking again whose it is."""

_PROBE: Final = b"\0" * 64 * 1024
"""A full disk still accepts an empty file. One more change may need this much."""
_ROW_FAULTS: Final = (ValueError, OverflowError, pa.ArrowException)
"""Rows of another day, without a value, in another order; impossible instants and texts."""


class Lake:
    """The audit lake of one data dir. Every method may raise StoreFault or StoreUnavailable."""

    def __init__(
        self,
        settings: Settings,
        observer: CacheObserver | None = None,
        guard: PrefixGuard | None = None,
        query_turns: TurnObserver | None = None,
        export_turns: TurnObserver | None = None,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """With segments in a bucket `observer` is told what their cache does.

        `query_turns` and `export_turns` are told what waits and runs. `guard` confirms that the
        prefix of the bucket is ours before anything in it is changed. `is_shared` says whether
        several organisations use the process now.
        """
        self._guard = guard
        self.segments: SegmentStore = open_segments(settings, observer or CacheObserver())
        self.queries = LakeQueries(settings, self.segments, query_turns, export_turns, is_shared)
        # Measured with four clients that send 1,000 rows a request: one thread accepts an eighth
        # more rows than six, which slow each other and the event loop.
        self._row_thread = new_pool(1, "rows")
        # It waits most of the time, which would keep other work from a shared thread.
        self._scrub_thread = new_pool(1, "scrub")
        self._data_dir = settings.data_dir

    async def confirm_prefix(self, age_max_s: float = 0.0) -> None:
        """See `PrefixGuard.confirm`; segments in a folder are always ours."""
        if self._guard is not None:
            await self._guard.confirm(age_max_s)

    async def seal(self, parts: Sequence[JournalPart]) -> list[Segment]:
        """The rows of each of `parts` as a durable segment that no catalog names yet."""
        new = []
        for part in parts:
            rows = await in_thread(decode_batches, part.batches)
            new.append(NewSegment(part.tenant_id, part.day, part.segment_id, rows))
        return await self._store(new)

    async def store_rows(
        self, tenant_id: str, day: date, segment_id: str, rows: pa.Table
    ) -> Segment:
        """See `write_segment`."""
        (segment,) = await self._store([NewSegment(tenant_id, day, segment_id, rows)])
        return segment

    async def _store(self, segments: Sequence[NewSegment]) -> list[Segment]:
        await self.confirm_prefix(CONFIRMED_S)
        return await _write(self.segments.put_rows, segments)

    async def merge(self, segments: Sequence[Segment], segment_id: str) -> Segment:
        """See `merge_segments`."""
        await self.confirm_prefix(CONFIRMED_S)
        return await _write(self._merge, segments, segment_id)

    def _merge(self, segments: Sequence[Segment], segment_id: str) -> Segment:
        with self.segments.local(segments):
            return self.segments.put(
                lambda folder: merge_segments(self.segments.root, segments, segment_id, folder)
            )

    @property
    def bucket(self) -> S3Segments | None:
        """The bucket of the segments, if they are in one."""
        return self.segments if isinstance(self.segments, S3Segments) else None

    async def reindex(self, segment: Segment) -> Segment:
        """See `analytics.storage.reindex.reindex`."""
        await self.confirm_prefix(CONFIRMED_S)
        return await _write(self._reindex, segment)

    def _reindex(self, segment: Segment) -> Segment:
        with self.segments.local([segment]):
            return self.segments.put_index(
                lambda folder: reindex(self.segments.root, segment, folder)
            )

    async def restore(self, segment: Segment, source: Path) -> None:
        """See `SegmentStore.restore`; what is stored then is verified. Raises DamagedFile."""
        await self.confirm_prefix()

        def restore() -> None:
            self.segments.restore(segment, source)
            if (fault := verify_stored(self.segments, segment, no_wait)) is not None:
                raise DamagedFile(f"{segment.path(self.segments.root)}: {fault.text}")

        await _write(restore)

    async def remove_segments(
        self, segments: Sequence[Segment], locked: Collection[str] = ()
    ) -> list[Segment]:
        """See `SegmentStore.delete`; of those that were `locked` (ids) no version is left, either.

        Returns those of which the bucket still keeps one, see `S3Segments.remove_versions`.
        """
        await self.confirm_prefix()
        await in_thread(self.segments.delete, segments)
        bucket = self.bucket
        if not locked or bucket is None:
            return []
        versions = [segment for segment in segments if segment.segment_id in locked]
        return await in_thread(bucket.remove_versions, versions)

    @asynccontextmanager
    async def local(self, segment: Segment) -> AsyncIterator[None]:
        """In the block the file of `segment` and its index are local; see `SegmentStore.local`."""
        if self.segments.is_local:
            yield
            return
        async with AsyncExitStack() as stack:
            for files in (self.segments.local([segment]), self.segments.local_index(segment)):
                await run_uncancellable(files.__enter__)
                stack.callback(files.__exit__, None, None, None)
            yield

    async def run_in_thread(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """The result of `function`, a long computation on rows."""
        return await in_thread(function, *arguments, pool=self._row_thread)

    async def iterate_in_thread(self, work: Iterable[_Step]) -> AsyncIterator[_Step]:
        """What `work` yields, each step by `run_uncancellable`."""
        remaining = iter(work)
        while (step := await run_uncancellable(next, remaining, None)) is not None:
            yield step

    async def list_files(self, tenant_id: str | None = None) -> list[StoredFile]:
        """See `SegmentStore.list_files`."""
        return await in_thread(self.segments.list_files, tenant_id)

    def path_of(self, segment: Segment) -> Path:
        """Where the segment is among the files that are listed."""
        return segment.path(self.segments.root)

    async def clock_s(self, now: datetime) -> float:
        """See `SegmentStore.clock_s`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.clock_s, now.timestamp())

    async def claimed_segments(self, grace_s: float) -> set[str]:
        """See `SegmentStore.claimed`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.claimed, grace_s)

    async def remove_orphans(
        self, files: list[StoredFile], known: set[str], now_s: float, grace_s: float
    ) -> int:
        """See `SegmentStore.remove_orphans`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.remove_orphans, files, known, now_s, grace_s)

    async def check_files(
        self, files: list[StoredFile], places: Mapping[str, tuple[str, date]]
    ) -> tuple[list[Finding], list[Finding]]:
        """See `analytics.storage.integrity.check_files`."""
        paths = [file.path for file in files]
        store = self.segments
        return await in_thread(check_files, store.root, paths, places, store.is_there)

    async def check_segment(
        self, segment: Segment, seen: SeqSet, on_rows: Callable[[pa.Table], object]
    ) -> list[Finding]:
        """See `analytics.storage.integrity.check_segment`; `on_rows` is called from a thread.

        What is checked are the files as they are stored, not copies of them.
        """

        def check() -> list[Finding]:
            with self.segments.as_stored(segment) as root:
                return check_segment(root, segment, seen, on_rows)

        return await in_thread(check)

    async def verify(
        self, segment: Segment, on_read: Callable[[int], None]
    ) -> tuple[Finding | None, Finding | None]:
        """What is wrong with the stored file of `segment`, and with its index if that is right.

        See `verify_stored`. `on_read` is called from a thread of its own, where it may wait.
        """

        def verify() -> tuple[Finding | None, Finding | None]:
            fault = verify_stored(self.segments, segment, on_read)
            if fault or not segment.index_sha256:
                return fault, None
            return None, verify_stored_index(self.segments, segment, on_read)

        return await in_thread(verify, pool=self._scrub_thread)

    async def verify_batches(
        self, batches: Sequence[JournalBatch], on_read: Callable[[int], None]
    ) -> dict[int, Finding]:
        """What is wrong with journal `batches`, by their first seq."""

        def verify() -> dict[int, Finding]:
            faults: dict[int, Finding] = {}
            for batch in batches:
                for finding in check_batches(batch.tenant_id, [batch], SeqSet()):
                    faults.setdefault(batch.first_seq, finding)
                on_read(len(batch.data))
            return faults

        return await in_thread(verify, pool=self._scrub_thread)

    async def verify_copy(
        self, copy: CachedFile, segment: Segment, on_read: Callable[[int], None]
    ) -> bool:
        """See `SegmentStore.verify_copy`; `on_read` as for `verify`."""
        return await in_thread(
            self.segments.verify_copy, copy, segment, on_read, pool=self._scrub_thread
        )

    async def ping(self) -> None:
        """Raise OSError unless the data dir takes a file."""
        await in_thread(_probe, self._data_dir / f".probe-{id(self):x}")

    def close(self) -> None:
        """Release the threads, the engine and the segments."""
        self.queries.close()
        for threads in (self._row_thread, self._scrub_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self.segments.close()


async def _write(function: Callable[..., _Result], *arguments: object) -> _Result:
    """As `in_thread`, for work that writes stored rows to new files.

    A failing disk is StoreUnavailable. Rows that no segment may hold are a StoreFault: they were
    read from storage, and differ from what was stored.
    """
    try:
        return await in_thread(function, *arguments)
    except OSError as error:
        raise file_fault(error) from error
    except _ROW_FAULTS as error:
        raise StoreFault(f"stored rows cannot be written: {error}") from error


def _probe(path: Path) -> None:
    try:
        path.write_bytes(_PROBE)
    finally:
        path.unlink(missing_ok=True)
