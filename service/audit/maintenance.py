"""Loops of background jobs: in each, one job at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from service.audit.evidence.keys import KEY_LOST
from service.audit.refusals import ClockNotTrusted
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.store.lease import LeaseTaken

OVERDUE_INTERVALS: Final = 10
OVERDUE_MIN_S: Final = 60.0
"""A job is overdue if it has not ended for so many of its intervals, and for so long."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """A job to run every `every_s` seconds; its failures are logged under `name`.

    `run` returns a true value if there was something to do, and so may be more. Setting `wanted`
    runs the job at once.
    """

    name: str
    every_s: float
    run: Callable[[], Awaitable[Any]]
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


class Maintenance:
    """Runs jobs until it is stopped; a failing job does not affect the others."""

    def __init__(
        self, jobs: Sequence[BackgroundJob], interval_s: float, clock: Clock, metrics: Metrics
    ) -> None:
        self._jobs = jobs
        # Not `job`, which Prometheus gives to every series of a target, by the name of its scrape.
        self._succeeded_at = metrics.gauge(
            "countersign_maintenance_last_success_timestamp_seconds",
            "When a background job last ran without failing.",
            "task",
            mode="max",
        )
        intervals = metrics.gauge(
            "countersign_maintenance_interval_seconds",
            "Seconds from one run of a background job to the next one.",
            "task",
            mode="max",
        )
        self._failures = metrics.counter(
            "countersign_maintenance_failures", "Runs of a background job that failed.", "task"
        )
        for job in jobs:
            self._failures.labels(job.name)  # the first one must be seen as an increase
            intervals.labels(job.name).set(max(job.every_s, interval_s))
        self._interval_s = interval_s
        self._clock = clock
        self._ran_at: dict[str, datetime] = {}
        self._ended_at: dict[str, float] = {}
        """Readings of the monotonic clock, from the begin of the first round on."""

        self._failed: set[str] = set()
        """Jobs whose last run failed; they wait for their interval even if wanted."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run due jobs every `interval_s`, and at once while there is more to do.

        A job that had something to do is due again in the next round. A failed one waits for its
        interval, so that an unreadable file is not read again every few seconds.
        """
        self._ended_at = dict.fromkeys((job.name for job in self._jobs), time.monotonic())
        while not stop.is_set():
            has_more = False
            for job in self._jobs:
                if not stop.is_set() and self._is_due(job):
                    has_more |= await self._try(job)
            if not has_more:
                await self._pause(stop)

    def is_overdue(self, now: float) -> bool:
        """True if the last run of a job ended long before `now`, on the monotonic clock."""
        return any(
            now - self._ended_at.get(job.name, now)
            > max(OVERDUE_INTERVALS * max(job.every_s, self._interval_s), OVERDUE_MIN_S)
            for job in self._jobs
        )

    @property
    def has_caught_up(self) -> bool:
        """True once each job has done all that there was to do, or failed."""
        return all(job.name in self._ran_at for job in self._jobs)

    async def _pause(self, stop: asyncio.Event) -> None:
        """Wait for the next round, for `stop`, or for a job to be wanted."""
        events = [stop, *(job.wanted for job in self._jobs if job.name not in self._failed)]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait(waiting, timeout=self._interval_s, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    def _is_due(self, job: BackgroundJob) -> bool:
        if job.wanted.is_set() and job.name not in self._failed:
            return True
        ran_at = self._ran_at.get(job.name)
        # `abs`: a clock that was set back must not stop the job until it has caught up.
        return ran_at is None or abs(self._clock() - ran_at) >= timedelta(seconds=job.every_s)

    async def _try(self, job: BackgroundJob) -> bool:
        """Run `job`; True if it had something to do.

        A failed job can be run again: it leaves the stored state as it was.
        """
        had_work: Any = None
        # Before the run: what is wanted while it runs may come too late for it.
        job.wanted.clear()
        self._failed.add(job.name)
        try:
            had_work = await job.run()
            self._failed.discard(job.name)
            self._succeeded_at.labels(job.name).set(self._clock().timestamp())
        except LeaseTaken:
            self._failed.discard(job.name)
            return False  # another process is doing it
        except ClockNotTrusted:
            self._failures.labels(job.name).inc()  # logged by the pruner
        except KEY_LOST as refusal:  # its text says all that the operator must know
            self._failures.labels(job.name).inc()
            _log.error("maintenance_failed", job=job.name, reason=str(refusal))
        except Exception:
            self._failures.labels(job.name).inc()
            _log.exception("maintenance_failed", job=job.name)
        finally:
            self._ended_at[job.name] = time.monotonic()
        if not had_work:
            self._ran_at[job.name] = self._clock()
        return bool(had_work)
