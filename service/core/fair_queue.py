"""Fair turns for work that organisations share: who begins next, and who must try again later.

`FairQueue` decides, and knows neither threads nor the event loop. `FairTurns` lets requests wait
for its decisions. It starts no work itself: a caller runs its work while it holds a turn.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from service.core.errors import (
    TOO_MANY_WAITING_OF_CALLER,
    WAITED_TOO_LONG,
    ServerBusy,
    TooManyWaiting,
)

SHORTS_PER_LONG: Final = 16
"""So many short jobs may begin while a long one could: then that one begins."""

BESIDE_S: Final = 1.0
"""So long after a job of another organisation was added the queue counts as shared with it."""

LEAD_MAX_S: Final = 5.0
"""At most so far ahead of the others is an organisation by what it is charged for."""

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""The key, session or token of the current request; empty outside of requests."""


class Length(StrEnum):
    """How long a job is expected to take. Short ones begin before long ones."""

    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many jobs run and wait. The limits of one caller count what runs and what waits.

    Of one organisation `per_tenant` jobs run at once, and while others use the queue or the
    process, too, at most `beside_others` of each length.
    """

    at_once: int
    per_tenant: int
    beside_others: int
    long_at_once: int
    long_per_tenant: int
    waiting_per_tenant: int
    waiting: int
    per_caller: int


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A place in a FairQueue. `began_at` is None while it waits.

    `is_only` says that no other job of its organisation ran when it began.
    """

    tenant_id: str
    caller: str
    length: Length
    added_at: float
    began_at: float | None = None
    is_only: bool = False


@dataclass(slots=True)
class _QueueShare:
    """The jobs of one organisation, and the time that they used, from a common start."""

    used_s: float
    served: int = 0
    waiting: dict[Length, deque[QueuedJob]] = field(
        default_factory=lambda: {length: deque() for length in Length}
    )
    running: dict[QueuedJob, float] = field(default_factory=dict)
    callers: Counter[str] = field(default_factory=Counter)

    @property
    def is_idle(self) -> bool:
        return not self.running and not any(self.waiting.values())

    @property
    def jobs_waiting(self) -> int:
        return sum(map(len, self.waiting.values()))

    def used_at(self, now: float) -> float:
        """The time used, with that of the jobs that still run."""
        return self.used_s + sum(now - began_at for began_at in self.running.values())

    def count_running(self, length: Length) -> int:
        return sum(job.length is length for job in self.running)


class FairQueue:
    """Jobs of organisations. The one that used the least time begins next.

    As deficit round robin, with time as the unit, charged when it is used: how long a job takes
    is not known before. An organisation that becomes active starts level with the one that used
    least, so it neither saves up time nor pays for what others did.
    """

    def __init__(
        self,
        bounds: Bounds,
        clock: Callable[[], float] = time.monotonic,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """A queue without jobs; `clock` returns seconds.

        `is_shared` says whether others use the process without a job in this queue.
        """
        self._bounds = bounds
        self._clock = clock
        self._is_shared = is_shared
        self._shares: dict[str, _QueueShare] = {}
        self._turns = 0
        self._shorts_since_long = 0
        self._last_tenant_id: str | None = None
        self._shared_until = 0.0

    def add(self, tenant_id: str, length: Length, caller: str = "") -> QueuedJob:
        """A job that waits for its turn.

        Raises TooManyWaiting, TOO_MANY_WAITING_OF_CALLER, ServerBusy.
        """
        now = self._clock()
        share = self._shares.get(tenant_id)
        if share is not None:
            if share.jobs_waiting >= self._bounds.waiting_per_tenant:
                raise TooManyWaiting
            if caller and share.callers[caller] >= self._bounds.per_caller:
                raise TOO_MANY_WAITING_OF_CALLER
        if self.count_waiting() >= self._bounds.waiting:
            raise ServerBusy
        if share is None or share.is_idle:
            level = self._level(now)
            share = self._shares.setdefault(tenant_id, _QueueShare(level))
            share.used_s = max(share.used_s, level)
        if tenant_id != self._last_tenant_id:
            if self._last_tenant_id is not None:
                self._shared_until = now + BESIDE_S
            self._last_tenant_id = tenant_id
        job = QueuedJob(tenant_id, caller, length, now)
        share.waiting[length].append(job)
        share.callers[caller] += 1
        return job

    def begin_next(self) -> QueuedJob | None:
        """The job whose turn it is, now running; None if no more may run, or none waits."""
        if self.count_running() >= self._bounds.at_once:
            return None
        lengths = list(Length)
        if self._shorts_since_long >= SHORTS_PER_LONG:
            lengths.reverse()
        now = self._clock()
        for length in lengths:
            shares = list(self._that_may_begin(length))
            if shares:
                first = min(shares, key=lambda share: (share.used_at(now), share.served))
                return self._begin(first, length, now)
        return None

    def end(self, job: QueuedJob) -> None:
        """Take out a job that has ended, or whose caller does not wait for it any more."""
        share = self._shares[job.tenant_id]
        if job in share.running:
            now = self._clock()
            share.used_s += now - share.running.pop(job)
            share.used_s = min(share.used_s, self._level(now) + LEAD_MAX_S)
        else:
            share.waiting[job.length].remove(job)
        share.callers -= Counter((job.caller,))  # drops a count of 0
        self._drop_idle()

    def count_running(self, length: Length | None = None) -> int:
        """How many jobs run."""
        running = (job for share in self._shares.values() for job in share.running)
        return sum(length in (None, job.length) for job in running)

    def count_waiting(self, length: Length | None = None) -> int:
        """How many jobs wait."""
        lengths = Length if length is None else (length,)
        return sum(len(share.waiting[each]) for share in self._shares.values() for each in lengths)

    def _begin(self, share: _QueueShare, length: Length, now: float) -> QueuedJob:
        if length is Length.LONG:
            self._shorts_since_long = 0
        elif any(self._that_may_begin(Length.LONG)):
            self._shorts_since_long += 1
        self._turns += 1
        share.served = self._turns
        job = share.waiting[length].popleft()
        job.is_only = not share.running
        job.began_at = share.running[job] = now
        return job

    def _that_may_begin(self, length: Length) -> Iterator[_QueueShare]:
        bounds = self._bounds
        if length is Length.LONG and self.count_running(length) >= bounds.long_at_once:
            return
        most = bounds.per_tenant
        if length is Length.LONG:
            most = min(most, bounds.long_per_tenant)
        if self._clock() < self._shared_until or self._is_shared():
            most = min(most, bounds.beside_others)
        for share in self._shares.values():
            is_free = len(share.running) < bounds.per_tenant and share.count_running(length) < most
            if share.waiting[length] and is_free:
                yield share

    def _level(self, now: float) -> float:
        """The least time that an active organisation has used."""
        active = [share.used_at(now) for share in self._shares.values() if not share.is_idle]
        return min(active, default=0.0)

    def _drop_idle(self) -> None:
        """Drop organisations without jobs that would start level with the others anyway."""
        now = self._clock()
        is_any_active = any(not share.is_idle for share in self._shares.values())
        level = self._level(now)
        for tenant_id, share in list(self._shares.items()):
            if share.is_idle and (not is_any_active or share.used_s <= level):
                del self._shares[tenant_id]


class TurnObserver:
    """What is told of turns, for metrics; this one counts nothing."""

    def waiting(self, length: Length, jobs: int) -> None:
        """So many jobs wait now."""

    def began(self, length: Length, waited_s: float) -> None:
        """A job begins after it waited so long."""

    def ended(self, tenant_id: str, length: Length, used_s: float) -> None:
        """A job that had begun has ended."""

    def refused(self, tenant_id: str) -> None:
        """A job was refused, or waited too long."""


class FairTurns:
    """Lets requests wait for their turns, in the event loop that first uses it."""

    def __init__(
        self,
        bounds: Bounds,
        wait_max_s: float,
        observer: TurnObserver | None = None,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        self.queue = FairQueue(bounds, is_shared=is_shared)
        self._wait_max_s = wait_max_s
        self._observer = observer or TurnObserver()
        self._waiters: dict[QueuedJob, asyncio.Future[None]] = {}

    async def begin(self, tenant_id: str, length: Length) -> QueuedJob:
        """A turn for one job. Pass it to `end` when its work has ended, also if the caller is gone.

        A caller that is cancelled while it waits leaves the queue. Raises TooManyWaiting,
        TOO_MANY_WAITING_OF_CALLER, ServerBusy, WAITED_TOO_LONG.
        """
        try:
            job = self.queue.add(tenant_id, length, CALLER.get())
            waiter = self._waiters[job] = asyncio.get_running_loop().create_future()
            self._begin_waiting()
            if not waiter.done():
                self._observer.waiting(length, self.queue.count_waiting(length))
                await self._wait(job, waiter)
                self._observer.waiting(length, self.queue.count_waiting(length))
        except (TooManyWaiting, ServerBusy):
            self._observer.refused(tenant_id)
            raise
        return job

    async def _wait(self, job: QueuedJob, waiter: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(self._wait_max_s):
                await waiter
        except BaseException as error:
            # It may have begun meanwhile: its place is free again either way.
            self._waiters.pop(job, None)
            self.end(job)
            self._observer.waiting(job.length, self.queue.count_waiting(job.length))
            if isinstance(error, TimeoutError):
                raise WAITED_TOO_LONG from error
            raise

    def end(self, job: QueuedJob) -> None:
        """Free the place of `job`: the next one begins."""
        self.queue.end(job)
        if job.began_at is not None:
            used_s = time.monotonic() - job.began_at
            self._observer.ended(job.tenant_id, job.length, used_s)
        self._begin_waiting()

    @asynccontextmanager
    async def turn(self, tenant_id: str, length: Length) -> AsyncIterator[None]:
        """A turn that lasts for the block. See `begin`.

        For work that ends with the block: a thread does not end when its caller is cancelled.
        """
        job = await self.begin(tenant_id, length)
        try:
            yield
        finally:
            self.end(job)

    def _begin_waiting(self) -> None:
        while (job := self.queue.begin_next()) is not None:
            self._observer.began(job.length, (job.began_at or job.added_at) - job.added_at)
            waiter = self._waiters.pop(job)
            if not waiter.done():  # a caller that is cancelled ends its job when it runs
                waiter.set_result(None)
