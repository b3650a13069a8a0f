"""Worker processes for long computations, which organisations use in turns.

Python runs one thread at a time, so a computation in a thread of the server slows every request.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Final, TypeVar

import structlog

from service.audit.child_process import answer, prepare_process
from service.audit.lake import Lake
from service.core.errors import ServerBusy
from service.core.fair_queue import Bounds, FairTurns, Length
from service.core.threads import consume_exception

WORKERS_UNAVAILABLE: Final = ServerBusy.of("the server cannot compute this now: try again later")

RETRY_S: Final = 60.0
"""Delay before processes are started again after they failed to start."""

_Result = TypeVar("_Result")
_log = structlog.get_logger(__name__)


START_S: Final = 30.0
"""How long a computation waits until the processes have started, which takes a second or two."""

ATTEMPTS: Final = 2
"""How often a computation is begun whose process dies: what is computed may be what ended it."""

WAIT_MAX_S: Final = 60.0
"""How long a computation waits for its turn."""

WAITING_PER_TENANT: Final = 256
_WAITING: Final = 2048
_PER_CALLER: Final = 128


class WorkerProcess:
    """Computes in up to `processes` processes and one more, which are started on first use.

    The additional one is for long computations, such as a document of a package with all its
    versions: they leave `processes` for short ones. Of one organisation one long computation runs
    at a time, and it never has all places. What is computed may be hostile: it is never computed
    in the server itself, unless `processes` is 0.
    """

    def __init__(self, lake: Lake, processes: int) -> None:
        self._lake = lake
        self._processes = processes
        self._turns = FairTurns(
            Bounds(
                at_once=processes + 1,
                per_tenant=max(1, processes),
                beside_others=max(1, processes),
                long_at_once=max(1, processes),
                long_per_tenant=1,
                waiting_per_tenant=WAITING_PER_TENANT,
                waiting=_WAITING,
                per_caller=_PER_CALLER,
            ),
            WAIT_MAX_S,
        )
        self._pool: ProcessPoolExecutor | None = None
        self._decided = Future[None]()
        """Done once the processes of `_pool` are ready, or will not be."""

        self._starts_after = 0.0
        """A reading of the monotonic clock."""

    async def compute(
        self,
        tenant_id: str,
        function: Callable[..., _Result],
        *arguments: object,
        length: Length = Length.SHORT,
    ) -> _Result:
        """What `function` returns or raises; it must be picklable and free of side effects.

        Raises TooManyWaiting, ServerBusy, WORKERS_UNAVAILABLE.
        """
        job = await self._turns.begin(tenant_id, length)
        running = asyncio.create_task(self._run(function, *arguments))
        # A process or a thread does not end when its caller is cancelled: nor does its turn.
        running.add_done_callback(lambda _: self._turns.end(job))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(consume_exception)
            raise

    async def _run(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        if not self._processes:
            return await self._lake.run_in_thread(function, *arguments)
        for _ in range(ATTEMPTS):
            pool = await self._started_pool()
            try:
                return await asyncio.wrap_future(pool.submit(function, *arguments))
            except BrokenProcessPool:
                _log.error("worker_process_died")
                self._close(pool)
        raise WORKERS_UNAVAILABLE

    async def _started_pool(self) -> ProcessPoolExecutor:
        """The processes, once they are ready. Raises WORKERS_UNAVAILABLE if that takes too long."""
        if self._pool is None and time.monotonic() >= self._starts_after:
            self._start()
        if self._pool is not None and not self._decided.done():
            await asyncio.wait([asyncio.wrap_future(self._decided)], timeout=START_S)
        if self._pool is None or not self._decided.done():
            raise WORKERS_UNAVAILABLE
        return self._pool

    def close(self) -> None:
        """End the processes; computations under way are lost."""
        if self._pool is not None:
            self._close(self._pool)

    def _close(self, pool: ProcessPoolExecutor) -> None:
        if self._pool is pool:  # else another computation has noticed the same
            self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Start the processes; runs in the event loop, so that two requests cannot both do it."""
        # Not forked: a fork inherits locks held by threads that it does not have.
        self._pool = pool = ProcessPoolExecutor(
            self._processes + 1, mp_context=get_context("spawn"), initializer=prepare_process
        )
        self._decided = decided = Future[None]()

        def on_answer(first: Future[None]) -> None:
            if not first.cancelled() and self._pool is pool:
                self._on_start(pool, first.exception())
            decided.set_result(None)

        pool.submit(answer).add_done_callback(on_answer)

    def _on_start(self, pool: ProcessPoolExecutor, failure: BaseException | None) -> None:
        """The processes are ready, or could not be started because of `failure`."""
        if failure is None:
            _log.info("worker_process_ready")
        else:
            _log.error("worker_process_not_started", reason=str(failure))
            self._starts_after = time.monotonic() + RETRY_S
            self._close(pool)
