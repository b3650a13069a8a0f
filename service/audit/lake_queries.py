"""Runs queries and exports of the audit lake for the event loop, in threads."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from analytics.cache.lru import ByteCache
from analytics.cache.results import ResultCache
from analytics.cache.row_groups import Decoded
from analytics.export.wire import json_objects
from analytics.export.writers import FileEncoding, Piece, export_pieces
from analytics.model.errors import StoreFault
from analytics.model.filters import Query
from analytics.query.engine import Cancellation, Engine, EngineLimits
from analytics.query.kept_sums import KeptSums, Sum, key_of, may_be_kept
from analytics.query.newest_texts import NewestTexts
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.query.scans import Resources
from analytics.statistics.value_index import ValueIndex
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot
from analytics.storage.suspects import Suspects
from service.audit.refusals import QueryTooSlow
from service.core.fair_queue import Bounds, FairTurns, Length, TurnObserver
from service.core.settings import Settings
from service.core.threads import (
    BACKGROUND_NICENESS,
    consume_exception,
    in_thread,
    new_pool,
    run_uncancellable,
)

_Result = TypeVar("_Result")
_STOP_AGAIN_S: Final = 0.05
KEPT_BYTES_MAX: Final = 16 * 2**20
"""What frequent values and groups that are kept may take, of all organisations."""

SUM_WAIT_S: Final = 0.25
"""So long a summary waits for its kept sum, before its rows are counted."""


class LakeQueries:
    """The queries of one data dir, each in its organisation's turn."""

    def __init__(
        self,
        settings: Settings,
        segments: SegmentStore,
        query_turns: TurnObserver | None,
        export_turns: TurnObserver | None,
        is_shared: Callable[[], bool],
    ) -> None:
        """`query_turns` and `export_turns` are told what waits and runs.

        `is_shared` says whether several organisations use the process now.
        """
        self._query_max_s = settings.query_max_s
        bounds = query_bounds(settings)
        self.wait_max_s = settings.query_wait_max_s
        self._query_turns = FairTurns(bounds, self.wait_max_s, query_turns, is_shared)
        self._query_threads = new_pool(bounds.at_once, "query")
        self._background_threads = new_pool(bounds.at_once, "background", BACKGROUND_NICENESS)
        self._export_turns = FairTurns(export_bounds(settings), settings.export_max_s, export_turns)
        self._export_threads = new_pool(settings.engine_threads, "export", BACKGROUND_NICENESS)
        self._stopping: set[asyncio.Task[None]] = set()
        self.suspects = Suspects()
        """What queries and exports of this process could not read."""

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
        self._index = ValueIndex(segments, each // 2)
        decoded, results = Decoded(segments, each), ResultCache(each // 8)
        self.newest = NewestTexts(decoded, json_objects, each // 8)
        self._sums = KeptSums(self._index, decoded, each // 4)
        self.kept = ByteCache(KEPT_BYTES_MAX)
        self._sum_thread = new_pool(1, "sums")
        self._summing: dict[str, tuple[Hashable, asyncio.Task[None]]] = {}
        self._reader = Reader(
            Planner(self._index, decoded, results),
            Resources(self._engine, segments, decoded, results),
        )

    async def warm_up(self) -> None:
        """Open the engine before the first query needs it."""
        with suppress(StoreFault):  # the first query tries again, and reports it
            # DuckDB's own threads inherit the niceness of the one that opens it.
            await in_thread(self._engine.open, pool=self._background_threads)

    async def run(
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
        self, snapshot: Snapshot, query: Query, encoding: FileEncoding, ends_at: float
    ) -> AsyncGenerator[Piece, None]:
        """The file of all rows of `query`, see `export_pieces`.

        The next piece is made while one is being sent, and no more than that: a slow reader slows
        the export. Raises QueryTooSlow when a piece would begin after `ends_at` (monotonic clock).
        """
        stop = Cancellation()
        tables = self._reader.cancelled_by(stop).stream(snapshot, query)
        pieces = export_pieces(tables, snapshot.tenant_id, encoding)
        coming = self._begin_piece(snapshot.tenant_id, pieces, ends_at)
        try:
            while (piece := await asyncio.shield(coming)) is not None:
                coming = self._begin_piece(snapshot.tenant_id, pieces, ends_at)
                yield piece
        finally:
            self._abandon(asyncio.create_task(_close(pieces, coming)), stop)

    def take_damaged(self) -> list[Segment]:
        """The segments whose index a query found missing or damaged since the last call."""
        return self._index.take_damaged()

    def close(self) -> None:
        """Release the threads and the engine."""
        for _, moving in self._summing.values():
            moving.cancel()  # its next step would find its thread gone
        for threads in (
            self._query_threads,
            self._background_threads,
            self._export_threads,
            self._sum_thread,
        ):
            threads.shutdown(wait=False, cancel_futures=True)
        self._engine.close()

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
