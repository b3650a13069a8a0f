"""The processes of a data dir that serve nothing: one seals and signs, one delivers, one does more.

None takes the interpreter's lock, or a core that is wanted, from a process that serves. A process
in the idle class gets only what all others leave, and cannot climb back: a full journal must not
wait for that, nor rows on their way to receivers.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import structlog
import uvloop

from service.app.background_jobs import busy_jobs, other_jobs, stream_jobs
from service.app.composition import Services, build_services
from service.app.logs import configure_logs
from service.app.process_end import KILL_AFTER_S, end_after, end_now, ignore_signals, on_signals
from service.app.supervisor import OVERDUE, BackgroundTarget
from service.app.watchdog import BEAT_S, Serving
from service.audit.maintenance import Maintenance
from service.core.clock import utc_now
from service.core.settings import Settings

SEAL_NICENESS: Final = 5
"""Sealing bounds the journal, so it gets a third of a core that a process of niceness 0 wants."""

STREAM_NICENESS: Final = 10
"""Delivery gets a tenth of such a core: rows go on to receivers when fewer are taken in."""

LOOK_S: Final = 5.0
"""How often it is looked whether jobs are overdue."""

Jobs = Callable[[Services], list[Maintenance]]
_Beside = Callable[[Services, Sequence[Maintenance]], Coroutine[Any, Any, None]]
"""What runs beside the loops until they have ended."""

_log = structlog.get_logger(__name__)


class SealSignal:
    """Tells the process that seals, from those that serve, that a journal is large."""

    def __init__(self) -> None:
        self._flag: Any = get_context("spawn").RawValue("b", 0)

    async def forward(self, wanted: asyncio.Event) -> None:
        """Send the signal each time that `wanted` is set, until cancelled."""
        while True:
            await wanted.wait()
            wanted.clear()
            self._flag.value = 1

    async def receive(self, wanted: asyncio.Event) -> None:
        """Set `wanted` each time that the signal was sent, until cancelled."""
        while True:
            if self._flag.value:
                self._flag.value = 0
                wanted.set()
            await asyncio.sleep(BEAT_S)


def background_work(settings: Settings, seal_signal: SealSignal) -> Mapping[str, BackgroundTarget]:
    """What each of the processes runs, by its name."""
    # They use one core each, and what they read they read once.
    own = msgspec.structs.replace(settings, engine_threads=1)
    return {
        "seal": partial(_seal, own, seal_signal),
        "streams": partial(_deliver, own),
        "maintenance": partial(_maintain, own),
    }


def _seal(settings: Settings, seal_signal: SealSignal, is_overdue: bool, serving: Serving) -> None:
    os.nice(SEAL_NICENESS)
    _run(settings, serving, busy_jobs, lambda own, _: seal_signal.receive(own.sealer.wanted))


def _deliver(settings: Settings, is_overdue: bool, serving: Serving) -> None:
    os.nice(STREAM_NICENESS)
    _run(settings, serving, stream_jobs, lambda *_: asyncio.sleep(0))


def _maintain(settings: Settings, is_overdue: bool, serving: Serving) -> None:
    os.nice(19)
    if not is_overdue:
        _enter_idle_class()

    # Not the last loop: to verify what is stored takes days, by its own pace.
    _run(settings, serving, other_jobs, lambda _, own: _watch(own[:-1], is_idle=not is_overdue))


def _enter_idle_class() -> None:
    """Let all others go first, at the processor and (by Linux's own rule) at the disk."""
    if not hasattr(os, "sched_setscheduler"):
        return  # not Linux
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        except ProcessLookupError:
            continue
        except OSError as error:  # such as a container's filter of system calls
            _log.warning("idle_class_refused", reason=str(error))
            return


async def _watch(loops: Sequence[Maintenance], *, is_idle: bool) -> None:
    """End the process when its jobs are overdue, to be started again outside of the idle class.

    There it enters that class once all is done.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        now = time.monotonic()
        if is_idle and any(loop.is_overdue(now) for loop in loops):
            # What is under way is begun again: each job commits in small steps.
            _log.warning("maintenance_overdue")
            end_now(OVERDUE)
        if not is_idle and all(loop.has_caught_up for loop in loops):
            _enter_idle_class()
            is_idle = True


def _run(settings: Settings, serving: Serving, jobs: Jobs, beside: _Beside) -> None:
    configure_logs(settings.log_level)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    uvloop.run(_work(settings, serving, jobs, beside))


async def _work(settings: Settings, serving: Serving, jobs: Jobs, beside: _Beside) -> None:
    """Do the jobs until SIGTERM; what is under way then is finished, or cut after KILL_AFTER_S."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    services = build_services(settings, utc_now, is_serving=False)

    def begin_stop() -> None:
        if not stop.is_set():
            stop.set()
            services.scrubber.stop()
            services.checkpointer.stop()
            end_after(KILL_AFTER_S)

    on_signals(lambda *_: loop.call_soon_threadsafe(begin_stop))
    gc.freeze()  # what the fork was made with is shared as long as it is not looked through
    gc.enable()
    loops = jobs(services)
    tasks = [
        asyncio.create_task(serving.turns.keep_counting(lambda late_s: None)),
        asyncio.create_task(beside(services, loops)),
    ]
    try:
        await asyncio.gather(*(one.run(stop) for one in loops))
        await services.close()
    finally:
        ignore_signals()
        for task in tasks:
            task.cancel()
        serving.turns.reset()
