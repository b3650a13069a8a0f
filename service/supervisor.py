"""Several processes that serve one socket: started, replaced when they die, stopped together."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from typing import Final

import structlog
from prometheus_client.multiprocess import mark_process_dead

RESTART_DELAY_S: Final = 1.0
POLL_S: Final = 0.5
KILL_AFTER_S: Final = 10.0
"""How long after the grace of their requests processes may take to close what they hold."""

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"

Target = Callable[[int, Callable[[], object]], None]
"""What a process runs, given its number and what it calls once it serves. It can be pickled."""

_log = structlog.get_logger(__name__)


class Supervisor:
    """Runs processes 0 to `count` - 1 of `target` until SIGTERM or SIGINT.

    A process that dies is replaced a second later; the requests it was answering are lost. One that
    ends before it has ever served ends them all.
    """

    def __init__(self, target: Target, count: int, grace_s: float) -> None:
        self._target = target
        self._grace_s = grace_s
        self._context = get_context("spawn")
        self._processes: dict[int, BaseProcess] = {}
        self._starts_at = dict.fromkeys(range(count), 0.0)
        self._has_served = [self._context.Event() for _ in range(count)]
        self._exit_code: int | None = None

    def run(self) -> int:
        """Supervise until a signal; the exit code."""
        with _shared_metrics(), _on_signals(self._stop):
            while self._exit_code is None:
                self._start_due()
                wait([process.sentinel for process in self._processes.values()], POLL_S)
                self._bury()
            self._end()
        return self._exit_code

    def _stop(self) -> None:
        self._exit_code = 0

    def _start_due(self) -> None:
        for number, starts_at in self._starts_at.items():
            if number not in self._processes and time.monotonic() >= starts_at:
                process = self._context.Process(
                    target=_run, args=(self._target, number, self._has_served[number].set)
                )
                process.start()
                self._processes[number] = process

    def _bury(self) -> None:
        """Take note of processes that have ended."""
        for number, process in list(self._processes.items()):
            if process.exitcode is None:
                continue
            del self._processes[number]
            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
            if self._exit_code is not None:
                continue
            if not self._has_served[number].is_set():
                self._exit_code = max(process.exitcode, 1)  # it has said why
                continue
            _log.error("serving_process_died", number=number, exit_code=process.exitcode)
            self._starts_at[number] = time.monotonic() + RESTART_DELAY_S

    def _end(self) -> None:
        """Let the processes finish their requests; kill those that do not end."""
        for process in self._processes.values():
            process.terminate()
        ends_at = time.monotonic() + self._grace_s + KILL_AFTER_S
        for process in self._processes.values():
            process.join(max(0.0, ends_at - time.monotonic()))
            if process.exitcode is None:
                _log.error("serving_process_killed", pid=process.pid)
                process.kill()
                process.join()


def _run(target: Target, number: int, on_serving: Callable[[], object]) -> None:
    """Run `target` in a process of its own, and end it when the supervisor is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(number, on_serving)


def _end_with_parent() -> None:
    supervisor = parent_process()
    if supervisor is not None:
        supervisor.join()
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
def _shared_metrics() -> Iterator[None]:
    """Let the processes that are started within count together."""
    with TemporaryDirectory(prefix="countersign-metrics-") as folder:
        os.environ[METRICS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[METRICS_FOLDER]
