"""What goes on in the background: sealing, compacting, pruning, sweeping, one after the other."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from service.audit.compactor import Compactor
from service.audit.indexer import Indexer
from service.audit.lease import LeaseTaken
from service.audit.pruner import Pruner
from service.audit.sealer import Sealer
from service.audit.sweeper import Sweeper
from service.clock import Clock
from service.errors import ClockNotTrusted
from service.metrics import Metrics
from service.settings import Settings

MERGES_MAX: Final = 4
"""Merges in one round: sealing must not wait for a year of days to be compacted."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do every `every_s` seconds; `name` is what its failures are logged under.

    `run` answers with something true when it found something to do, and so may find more.
    """

    name: str
    every_s: float
    run: Callable[[], Awaitable[Any]]


def maintenance_jobs(
    settings: Settings,
    sealer: Sealer,
    compactor: Compactor,
    indexer: Indexer,
    pruner: Pruner,
    sweeper: Sweeper,
) -> list[Job]:
    """The jobs of one process, in the order in which a round does them."""
    return [
        Job("seal", settings.seal_interval_s, sealer.seal_due),
        Job(
            "compact",
            settings.sweep_interval_s,
            lambda: compactor.compact_due(merges_max=MERGES_MAX),
        ),
        Job("index", settings.sweep_interval_s, indexer.build_missing),
        Job("prune", settings.prune_interval_s, pruner.prune_in_background),
        Job("unlink_retired", settings.sweep_interval_s, sweeper.unlink_retired),
        Job("clear_orphans", settings.sweep_interval_s, sweeper.clear_orphans),
        Job("forget_old_answers", settings.sweep_interval_s, sweeper.forget_old_answers),
    ]


class Maintenance:
    """Runs jobs until it is told to stop, whatever happens in one of them."""

    def __init__(
        self, jobs: Sequence[Job], interval_s: float, clock: Clock, metrics: Metrics
    ) -> None:
        self._jobs = jobs
        self._metrics = metrics
        for job in jobs:
            metrics.maintains(job.name)
        self._interval_s = interval_s
        self._clock = clock
        self._ran_at: dict[str, datetime] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Every `interval_s`, do what is due.

        A job that found something to do is due again in the next round. One that failed waits for
        its time: a file that cannot be read would be read, for nothing, every few seconds.
        """
        while not stop.is_set():
            for job in self._jobs:
                if not stop.is_set() and self._is_due(job):
                    await self._try(job)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval_s)

    def _is_due(self, job: Job) -> bool:
        ran_at = self._ran_at.get(job.name)
        return ran_at is None or abs(self._clock() - ran_at) >= timedelta(seconds=job.every_s)

    async def _try(self, job: Job) -> None:
        """Nothing is lost by a job that fails: it has left things as they were."""
        found: Any = None
        try:
            found = await job.run()
            self._metrics.maintained(job.name, self._clock())
        except LeaseTaken:
            return  # another process is at it
        except ClockNotTrusted:
            self._metrics.maintenance_failed(job.name)  # the pruner has said more of it
        except Exception:
            self._metrics.maintenance_failed(job.name)
            _log.exception("maintenance_failed", job=job.name)
        if not found:
            self._ran_at[job.name] = self._clock()
