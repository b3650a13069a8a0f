"""Runs the audit lake for the event loop, in threads."""

import asyncio
import sys
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from analytics.cache.results import ResultCache
from analytics.cache.row_groups import Decoded
from analytics.export.wire import json_objects
from analytics.export.writers import FileForm, Piece, export_pieces
from analytics.imports.segment_buffer import SegmentBuffer
from analytics.model.errors import StoreFault
from analytics.model.filters import Query
from analytics.query.engine import Cancellation, Engine, EngineLimits
from analytics.query.kept_sums import KeptSums, Sum, key_of, may_be_kept
from analytics.query.newest_texts import NewestTexts
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.query.scans import Resources
from analytics.statistics.value_index import ValueIndex
from analytics.storage.audit_files import is_swept
from analytics.storage.cache_folder import CachedFile, CacheObserver, SilentObserver
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
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import Claim, SegmentStore, StoredFile
from analytics.storage.segment_writer import NewSegment
from analytics.storage.snapshot import Snapshot
from analytics.storage.suspects import Suspects
from analytics.storage.verified_files import DamagedFile, no_wait
from service.audit.installation import PrefixGuard, open_segments
from service.audit.refusals import QueryTooSlow
from service.core.fair_queue import Bounds, FairTurns, Length, TurnObserver
from service.core.file_faults import file_fault
from service.core.ids import new_id
from service.core.settings import Settings
from service.core.threads import (
    BACKGROUND_NICENESS,
    consume_exception,
    in_thread,
    new_pool,
    run_uncancellable,
)

_Result = TypeVar("_Result")
_Step = TypeVar("_Step")
_STOP_AGAIN_S: Final = 0.05
CONFIRMED_S: Final = 60.0
"""For this time the prefix of a bucket is written to without asking again whose it is."""

SUM_WAIT_S: Final = 0.25
"""So long a summary waits for its kept sum, before its rows are counted."""

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
        self.segments: SegmentStore = open_segments(settings, observer or SilentObserver())
        self._query_max_s = settings.query_max_s
        bounds = query_bounds(settings)
        self.query_wait_max_s = settings.query_wait_max_s
        self._query_turns = FairTurns(bounds, self.query_wait_max_s, query_turns, is_shared)
        self._query_threads = new_pool(bounds.at_once, "query")
        self._background_threads = new_pool(bounds.at_once, "background", BACKGROUND_NICENESS)
        self._export_turns = FairTurns(export_bounds(settings), settings.export_max_s, export_turns)
        self._export_threads = new_pool(settings.engine_threads, "export", BACKGROUND_NICENESS)
        # Measured with four clients that send 1,000 rows a request: one thread accepts an eighth
        # more rows than six, which slow each other and the event loop.
        self._row_thread = new_pool(1, "rows")
        # It waits most of the time, which would keep other work from a shared thread.
        self._scrub_thread = new_pool(1, "scrub")
        self._stopping: set[asyncio.Task[None]] = set()
        self.suspects = Suspects()
        """What queries and exports of this process could not read."""

        self._data_dir = settings.data_dir
        self._engine = Engine(
            settings.audit_dir,
            settings.temp_dir,
            EngineLimits(
                memory_mb=settings.engine_memory_mb,
                temp_mb=settings.engine_temp_mb,
                threads=settings.engine_threads,
            ),
        )
        each = settings.decoded_memory_mb * 2**20 // 2
        self._index = ValueIndex(self.segments, each // 2)
        decoded, results = Decoded(self.segments, each), ResultCache(each // 8)
        self.newest = NewestTexts(decoded, json_objects, each // 8)
        self._sums = KeptSums(self._index, decoded, each // 4)
        self._sum_thread = new_pool(1, "sums")
        self._summing: dict[str, tuple[Hashable, asyncio.Task[None]]] = {}
        self._reader = Reader(
            Planner(self._index, decoded, results),
            Resources(self._engine, self.segments, decoded, results),
        )

    async def warm_up(self) -> None:
        """Open the engine before the first query needs it."""
        with suppress(StoreFault):  # the first query tries again, and reports it
            # DuckDB's own threads inherit the niceness of the one that opens it.
            await in_thread(self._engine.open, pool=self._background_threads)

    async def query(
        self,
        function: Callable[[Reader], _Result],
        time_max_s: float | None = None,
        *,
        tenant_id: str = "",
        length: Length = Length.SHORT,
    ) -> _Result:
        """The result of `function` in a thread of queries, within `time_max_s` or `query_max_s`.

        Before that it waits for the turn of the organisation, see `FairTurns.begin`. It is stopped
        when its caller is cancelled. Raises QueryTooSlow, and what `begin` raises.
        """
        job = await self._query_turns.begin(tenant_id, length)
        stop = Cancellation()
        reader = self._reader.cancelled_by(stop)
        # What an organisation runs besides its first short query must not slow the others'.
        is_first = job.is_only and length is Length.SHORT
        pool = self._query_threads if is_first else self._background_threads
        answer = asyncio.create_task(in_thread(function, reader, pool=pool))
        # When the thread ends, and not when its caller goes: until then it takes processor time.
        answer.add_done_callback(lambda _: self._query_turns.end(job))
        try:
            async with asyncio.timeout(time_max_s or self._query_max_s):
                # Shielded: a thread cannot be cancelled. `_abandon` stops its work.
                return await asyncio.shield(answer)
        except TimeoutError as error:
            raise QueryTooSlow from error
        except StoreFault as fault:
            self.suspects.record(fault)
            raise
        finally:
            self._abandon(answer, stop)

    async def kept_sum(self, snapshot: Snapshot, query: Query) -> Sum | None:
        """The sum of `query`; None if it is not kept, or not moved on within SUM_WAIT_S.

        Sums are moved on in one thread, in short steps, one sum of an organisation at a time. All
        who ask for it wait for the same, and no thread for queries does. Raises StoreFault.
        """
        found = self._sums.find(snapshot, query)
        if found is not None or not may_be_kept(query):
            return found
        key, tenant_id = key_of(snapshot, query), snapshot.tenant_id
        if tenant_id not in self._summing:
            moving = asyncio.create_task(self._move_sum(snapshot, query))
            moving.add_done_callback(lambda _: self._summing.pop(tenant_id))
            self._summing[tenant_id] = key, moving
        key_moved, moving = self._summing[tenant_id]
        if key_moved == key:
            await asyncio.wait([moving], timeout=SUM_WAIT_S)
        return self._sums.find(snapshot, query)

    async def _move_sum(self, snapshot: Snapshot, query: Query) -> None:
        # A fault is for the query that counts the rows to raise: it may not need what is damaged.
        with suppress(StoreFault):
            while not await in_thread(self._sums.step, snapshot, query, pool=self._sum_thread):
                pass

    async def export(
        self, snapshot: Snapshot, query: Query, form: FileForm, ends_at: float
    ) -> AsyncGenerator[Piece, None]:
        """The file of all rows of `query`, see `export_pieces`.

        The next piece is made while one is being sent, and no more than that: a slow reader slows
        the export. Raises QueryTooSlow when a piece would begin after `ends_at` (monotonic clock).
        """
        stop = Cancellation()
        tables = self._reader.cancelled_by(stop).stream(snapshot, query)
        pieces = export_pieces(tables, snapshot.tenant_id, form)
        coming = self._begin_piece(snapshot.tenant_id, pieces, ends_at)
        try:
            while (piece := await asyncio.shield(coming)) is not None:
                coming = self._begin_piece(snapshot.tenant_id, pieces, ends_at)
                yield piece
        finally:
            self._abandon(asyncio.create_task(_close(pieces, coming)), stop)

    async def confirm_prefix(self, age_max_s: float = 0.0) -> None:
        """See `PrefixGuard.confirm`; segments in a folder are always ours."""
        if self._guard is not None:
            await self._guard.confirm(in_thread, age_max_s)

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

    def claim(self, grace_s: float) -> Claim:
        """See `SegmentStore.claim`."""
        return self.segments.claim(grace_s)

    def segment_buffer(self, tenant_id: str, claim: Claim) -> SegmentBuffer:
        """An empty SegmentBuffer for rows of the tenant, which are stored under `claim`."""
        return SegmentBuffer(claim, tenant_id, lambda: new_id("seg"))

    async def merge(self, segments: Sequence[Segment], segment_id: str) -> Segment:
        """See `merge_segments`."""
        await self.confirm_prefix(CONFIRMED_S)
        return await _write(self._merge, segments, segment_id)

    def _merge(self, segments: Sequence[Segment], segment_id: str) -> Segment:
        with self.segments.local(segments):
            return self.segments.put(
                lambda folder: merge_segments(self.segments.root, segments, segment_id, folder)
            )

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

    def damaged(self) -> list[Segment]:
        """The segments whose index a query found missing or damaged since the last call."""
        return self._index.take_damaged()

    async def remove_segments(self, segments: Sequence[Segment]) -> None:
        """See `SegmentStore.delete`."""
        await self.confirm_prefix()
        await in_thread(self.segments.delete, segments)

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

    async def list_missing(self, segments: Sequence[Segment]) -> list[Segment]:
        """See `SegmentStore.list_missing`."""
        return await in_thread(self.segments.list_missing, segments)

    async def run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, a long computation on rows."""
        return await in_thread(work, pool=self._row_thread)

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

    async def is_stored(self, segment: Segment) -> bool:
        """See `SegmentStore.is_there`."""
        return await in_thread(self.segments.is_there, self.path_of(segment))

    async def clock_s(self, now: datetime) -> float:
        """See `SegmentStore.clock_s`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.clock_s, now.timestamp())

    async def claimed_segments(self, grace_s: float) -> set[str]:
        """See `SegmentStore.claimed`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.claimed, grace_s)

    def list_unknown(self, files: list[StoredFile], known: set[str]) -> list[StoredFile]:
        """Those of `files` that lie where segments do and are of none in `known` (ids)."""
        return [file for file in files if is_swept(self.segments.root, file.path, known)]

    async def remove_orphans(
        self, files: list[StoredFile], known: set[str], now_s: float, grace_s: float
    ) -> int:
        """See `SegmentStore.remove_orphans`."""
        await self.confirm_prefix()
        return await in_thread(self.segments.remove_orphans, files, known, now_s, grace_s)

    async def list_copies(self) -> list[CachedFile]:
        """See `SegmentStore.copies`."""
        return await in_thread(self.segments.copies)

    async def drop_copies(self, copies: list[CachedFile], known: set[str]) -> int:
        """See `SegmentStore.drop_copies`."""
        return await in_thread(self.segments.drop_copies, copies, known)

    async def check_files(
        self, files: list[StoredFile], places: Mapping[str, tuple[str, date]]
    ) -> tuple[list[Finding], list[Finding]]:
        """See `analytics.storage.integrity.check_files`."""
        paths = [file.path for file in files]
        store = self.segments
        return await in_thread(check_files, store.root, paths, places, store.is_there)

    async def check_batches(
        self,
        tenant_id: str,
        batches: Sequence[JournalBatch],
        seen: SeqSet,
        on_rows: Callable[[pa.Table], object],
    ) -> list[Finding]:
        """See `analytics.storage.integrity.check_batches`; `on_rows` is called from a thread."""
        return await in_thread(check_batches, tenant_id, batches, seen, on_rows)

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
        self, batches: Sequence[tuple[str, JournalBatch]], on_read: Callable[[int], None]
    ) -> dict[int, Finding]:
        """What is wrong with journal `batches` (each with its tenant id), by their first seq."""

        def verify() -> dict[int, Finding]:
            faults: dict[int, Finding] = {}
            for tenant_id, batch in batches:
                for finding in check_batches(tenant_id, [batch], SeqSet()):
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
        for _, moving in self._summing.values():
            moving.cancel()  # its next step would find its thread gone
        for threads in (
            self._query_threads,
            self._background_threads,
            self._export_threads,
            self._row_thread,
            self._sum_thread,
            self._scrub_thread,
        ):
            threads.shutdown(wait=False, cancel_futures=True)
        self._engine.close()
        self.segments.close()

    def _begin_piece(
        self, tenant_id: str, pieces: Iterator[Piece], ends_at: float
    ) -> asyncio.Task[Piece | None]:
        """The next of `pieces` (None: there are no more), made when it is the tenant's turn."""
        if time.monotonic() > ends_at:
            raise QueryTooSlow
        return asyncio.create_task(self._make_piece(tenant_id, pieces))

    async def _make_piece(self, tenant_id: str, pieces: Iterator[Piece]) -> Piece | None:
        async with self._export_turns.turn(tenant_id, Length.LONG):
            try:
                return await run_uncancellable(next, pieces, None, pool=self._export_threads)
            except StoreFault as fault:
                self.suspects.record(fault)
                raise

    def _abandon(self, answer: asyncio.Task[Any], stop: Cancellation) -> None:
        """Stop the work of `answer`, whose caller does not wait for it any more."""
        if answer.done():
            consume_exception(answer)
            return
        # In a task of its own: this one may be cancelled, and the answer is not waited for.
        stopping = asyncio.create_task(_end(answer, stop))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)


def query_bounds(settings: Settings) -> Bounds:
    """How many queries run and wait in a process.

    Python runs one thread at a time, so more threads slow each other. Measured with 16 clients:
    one more thread than cores answers an eighth more requests than six threads. That is what one
    organisation may have; one place more is for the others. While they use it, or the event loop,
    one short query and one long one: each thread that computes holds up what answers the others
    (`bench_fairness`, 16 audit pages).
    """
    threads = settings.engine_threads
    return Bounds(
        at_once=threads + 2,
        per_tenant=threads + 1,
        beside_others=1,
        long_at_once=threads,
        long_per_tenant=min(settings.long_queries_per_org_max, threads),
        waiting_per_tenant=settings.queries_waiting_per_org_max,
        waiting=settings.queries_waiting_max,
        per_caller=settings.queries_per_caller_max,
    )


def export_bounds(settings: Settings) -> Bounds:
    """How many pieces of exports are made at once. `Exporter` limits the exports."""
    threads = settings.engine_threads
    unlimited = sys.maxsize
    return Bounds(
        at_once=threads,
        per_tenant=threads,
        beside_others=threads,
        long_at_once=threads,
        long_per_tenant=threads,
        waiting_per_tenant=unlimited,
        waiting=unlimited,
        per_caller=unlimited,
    )


async def _end(answer: asyncio.Task[Any], stop: Cancellation) -> None:
    """Stop a query until its thread is free again."""
    while not answer.done():
        stop.set()
        await asyncio.wait([answer], timeout=_STOP_AGAIN_S)
    consume_exception(answer)


async def _close(pieces: Generator[Piece, None, None], coming: asyncio.Task[Piece | None]) -> None:
    """End the making of `pieces`, of which one is `coming`, and the threads that it takes."""
    await asyncio.wait([coming])
    consume_exception(coming)
    await in_thread(pieces.close)


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
