"""Several processes that serve one socket: started, replaced when they die, stopped together."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog
from prometheus_client import values

from service.process_metrics import METRICS_FOLDER, record_pid, reserve_pid_file
from service.watchdog import (
    LOOK_S,
    Serving,
    StallClock,
    dump_and_kill,
    dump_on_signal,
    is_traced,
)

RESTART_DELAY_MAX_S: Final = 60.0
KILL_AFTER_S: Final = 10.0
"""How long after the grace of their requests processes may take to close what they hold."""

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_METRICS_BYTES: Final = {
    "counter": 2**18,
    "gauge_max": 2**18,
    "gauge_livemin": 2**18,
    "gauge_livemax": 2**16,
    "gauge_livesum": 2**16,
    "histogram": 2**20,
}
"""By prometheus_client's kind of file: several times what all routes and statuses need."""

Target = Callable[[int, Serving], None]
"""What a process runs, given its number. It can be pickled."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Worker:
    """One process and its successors. `deaths` counts those that followed soon after a start."""

    serving: Serving
    clock: StallClock
    process: BaseProcess | None = None
    started_at: float = 0.0
    starts_at: float = 0.0
    deaths: int = 0


class Supervisor:
    """Runs processes 0 to `count` - 1 of `target` until SIGTERM or SIGINT.

    A process that ends is replaced, with any exit code; the requests it was answering are lost.
    Only if one fails before any has ever served, all end: the settings or the data are wrong.
    They are forked from one process that has loaded what they need and opened nothing; if it dies,
    they end with it, and all are replaced.
    """

    def __init__(self, target: Target, count: int, grace_s: float, stall_s: float = 0.0) -> None:
        """A process whose event loop does not turn for `stall_s` seconds is replaced; 0: never."""
        self._target = target
        self._grace_s = grace_s
        self._context = get_context("forkserver")
        self._stall_s = stall_s
        self._workers = [_Worker(Serving(), StallClock(stall_s)) for _ in range(count)]
        self._exit_code: int | None = None

    def run(self) -> int:
        """Supervise until a signal; returns the exit code."""
        with _on_signals(self._stop), _shared_metrics(len(self._workers)):
            try:
                while self._exit_code is None:
                    self._start_due()
                    wait([process.sentinel for process in self._running()], LOOK_S)
                    self._kill_stalled()
                    self._reap()
            finally:
                self._end()
        return self._exit_code

    def _stop(self) -> None:
        self._exit_code = 0

    def _running(self) -> list[BaseProcess]:
        return [worker.process for worker in self._workers if worker.process is not None]

    def _start_due(self) -> None:
        now = time.monotonic()
        for number, worker in enumerate(self._workers):
            if worker.process is not None or now < worker.starts_at:
                continue
            process = self._context.Process(
                target=_run,
                args=(self._target, number, worker.serving, os.environ[METRICS_FOLDER]),
            )
            worker.serving.turns.reset()
            try:
                _run_forkserver()
                process.start()
            except (OSError, EOFError) as error:  # out of processes, memory or descriptors
                _log.error("serving_process_not_started", number=number, reason=str(error))
                self._delay(worker)
            else:
                worker.process, worker.started_at = process, now

    def _kill_stalled(self) -> None:
        """Kill the processes whose event loop does not turn any more; they are then replaced."""
        now = time.monotonic()
        for number, worker in enumerate(self._workers):
            pid = None if worker.process is None else worker.process.pid
            if pid is None or not worker.clock.is_stalled(worker.serving.turns.count, now):
                continue
            if not is_traced(pid):
                _log.error("loop_stalled", number=number, pid=pid, stall_s=self._stall_s)
                dump_and_kill(pid)

    def _reap(self) -> None:
        for number, worker in enumerate(self._workers):
            code = None if worker.process is None else worker.process.exitcode
            if code is None or self._exit_code is not None:
                continue
            worker.process = None
            # By a signal, such as that of a machine without memory, it may end at any time.
            if code > 0 and not any(one.serving.has_served for one in self._workers):
                self._exit_code = code  # it has logged the reason; to start it again is no help
                continue
            pause_s = self._delay(worker)
            _log.error(
                "serving_process_died", number=number, exit_code=code, next_start_in_s=pause_s
            )

    @staticmethod
    def _delay(worker: _Worker) -> float:
        """Replace `worker` after a second, and after longer each time that it dies soon again.

        Returns the pause in seconds.
        """
        now = time.monotonic()
        worker.deaths = worker.deaths + 1 if now - worker.started_at < RESTART_DELAY_MAX_S else 1
        pause_s = min(2.0 ** (worker.deaths - 1), RESTART_DELAY_MAX_S)
        worker.starts_at = now + pause_s
        return pause_s

    def _end(self) -> None:
        """Let the processes finish their requests; kill those that do not end."""
        for process in self._running():
            process.terminate()
        ends_at = time.monotonic() + self._grace_s + KILL_AFTER_S
        for process in self._running():
            process.join(max(0.0, ends_at - time.monotonic()))
            if process.exitcode is None:
                _log.error("serving_process_killed", pid=process.pid)
                process.kill()
                process.join()


def _run_forkserver() -> None:
    """Start the process that the others are forked from, if there is none.

    It inherits that SIGTERM is blocked: one to all processes of a unit must not end it, since it
    tells how the others end. They inherit it, too, until `_run`, so none is lost.
    """
    resource_tracker.ensure_running()  # it would unblock SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(target: Target, number: int, serving: Serving, metrics_folder: str) -> None:
    """Run `target` in a process of its own, and end it when the supervisor is gone."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.environ[METRICS_FOLDER] = metrics_folder  # it was not set yet when the forkserver started
    # The files of a process are its successor's: counts go on, and need no room on a full disk.
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
    record_pid(Path(metrics_folder), number)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    dump_on_signal()
    try:
        target(number, serving)
    finally:
        supervisor = parent_process()
        if supervisor is not None and not supervisor.is_alive():
            # A supervisor that was killed has not removed it, and it takes memory.
            shutil.rmtree(metrics_folder, ignore_errors=True)


def _end_with_parent() -> None:
    supervisor, forked_by = parent_process(), os.getppid()
    # Without the process that it was forked from, the supervisor would count it as ended.
    while supervisor is not None and supervisor.is_alive() and os.getppid() == forked_by:
        supervisor.join(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at SIGTERM and SIGINT within."""
    before = {
        number: signal.signal(number, lambda *_: stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shared_metrics(count: int) -> Iterator[None]:
    """Let `count` processes that are started within count together, through files.

    prometheus_client maps them into memory: to write to a page that a full disk has no room for is
    SIGBUS, the end of the process. So their room is taken here, where its lack is an OSError.
    """
    memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="countersign-metrics-", dir=memory) as folder:
        for number in range(count):
            reserve_pid_file(Path(folder), number)
            for kind, size in _METRICS_BYTES.items():
                with (Path(folder) / f"{kind}_{number}.db").open("xb") as file:
                    os.posix_fallocate(file.fileno(), 0, size)
        os.environ[METRICS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[METRICS_FOLDER]
