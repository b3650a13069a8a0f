"""The processes of a service: started, replaced when they die, stopped together.

Some serve one socket, and some work in the background beside them.
"""

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog
from prometheus_client import values

from service.app.process_end import KILL_AFTER_S, end_now
from service.app.watchdog import (
    LOOK_S,
    START_FACTOR,
    Serving,
    StallClock,
    dump_and_kill,
    dump_on_signal,
    is_traced,
)
from service.core.process_metrics import METRICS_FOLDER, record_pid, reserve_pid_file

RESTART_DELAY_MAX_S: Final = 60.0
OVERDUE: Final = 75
"""The exit code of a background process whose jobs are overdue: it wants to be started again."""

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_METRICS_PREFIX: Final = "countersign-metrics-"
_NEW_S: Final = 60.0
"""A folder without a lock that is no older may be one that is about to get it."""

_ATTEMPTS: Final = 25
_ATTEMPT_S: Final = 0.02
"""How often, and after which pause, it is tried to remove a folder that is still locked."""

_METRICS_BYTES: Final = {
    "counter": 2**18,
    "gauge_max": 2**18,
    "gauge_livemin": 2**18,
    "gauge_livemax": 2**16,
    "gauge_livesum": 2**16,
    "histogram": 2**20,
}
"""By prometheus_client's kind of file: several times what all routes and statuses need."""

ServingTarget = Callable[[int, Serving], None]
"""What a process that serves runs, given its number. It can be pickled."""

BackgroundTarget = Callable[[bool, Serving], None]
"""What a process beside them runs, given whether its jobs are overdue. It can be pickled."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Worker:
    """One process and its successors. `deaths` counts those that followed soon after a start."""

    name: str
    target: Callable[..., None]
    number: int | None
    """None for a process in the background."""

    clock: StallClock
    serving: Serving = field(default_factory=Serving)
    process: BaseProcess | None = None
    started_at: float = 0.0
    starts_at: float = 0.0
    deaths: int = 0
    is_overdue: bool = False

    def log_error(self, event: str, **facts: object) -> None:
        kind = "background" if self.number is None else "serving"
        _log.error(f"{kind}_process_{event}", name=self.name, **facts)

    def work(self) -> Callable[[], None]:
        """What the next process runs."""
        first = self.is_overdue if self.number is None else self.number
        return partial(self.target, first, self.serving)


class Supervisor:
    """Runs processes 0 to `count` - 1 of `target`, and those of `background`, by their names.

    A process that ends is replaced, with any exit code; the requests it was answering are lost.
    Only if one fails before any has ever served, all end: the settings or the data are wrong. The
    early end of one in the background ends no other.
    They are forked from one process that has loaded what they need and opened nothing; if it dies,
    they end with it, and all are replaced.
    """

    def __init__(
        self,
        target: ServingTarget,
        count: int,
        grace_s: float,
        stall_s: float = 0.0,
        background: Mapping[str, BackgroundTarget] | None = None,
    ) -> None:
        """A process whose event loop does not turn for `stall_s` seconds is replaced; 0: never.

        One in the background, which others take the processor from, has START_FACTOR as long.
        """
        self._grace_s = grace_s
        self._context: Any = get_context("forkserver")
        self._inherited: socket | None = None
        self._stall_s = stall_s
        self._workers = [
            _Worker(str(number), target, number, StallClock(stall_s)) for number in range(count)
        ]
        self._workers += [
            _Worker(name, work, None, StallClock(START_FACTOR * stall_s))
            for name, work in (background or {}).items()
        ]
        self._exit_code: int | None = None

    def run(self) -> int:
        """Supervise until SIGTERM or SIGINT; returns the exit code."""
        names = [worker.name for worker in self._workers]
        with _on_signals(self.stop), _shared_metrics(names):
            try:
                self._supervise()
            finally:
                self._end()
        return self._exit_code or 0

    @contextmanager
    def in_thread(self, name: str, listener: socket) -> Iterator[None]:
        """Supervise in a thread during the block, in which this process, `name`, serves itself.

        It is forked if it has a single thread: then nothing has to be loaded once more. Its forks
        close `listener`, which they would else keep from others when it is gone.
        """
        with _shared_metrics([name, *(worker.name for worker in self._workers)]) as folder:
            _count_as(name, folder)
            if _is_forkable():
                self._context, self._inherited = get_context("fork"), listener
            self._start_due()
            self._context, self._inherited = get_context("forkserver"), None
            watcher = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
            watcher.start()
            try:
                yield
            finally:
                self.stop()
                watcher.join()
                self._end()

    def stop(self) -> None:
        """Let all processes finish what they do, and replace none any more."""
        self._exit_code = 0
        self._terminate()

    def _terminate(self) -> None:
        for process in self._running():
            process.terminate()

    def _supervise(self) -> None:
        while self._exit_code is None:
            self._start_due()
            wait([process.sentinel for process in self._running()], LOOK_S)
            self._kill_stalled()
            self._reap()

    def _running(self) -> list[BaseProcess]:
        return [worker.process for worker in self._workers if worker.process is not None]

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is not None or now < worker.starts_at:
                continue
            process = self._context.Process(
                target=_run,
                args=(worker.work(), worker.name, os.environ[METRICS_FOLDER], self._inherited),
            )
            worker.serving.turns.reset()
            try:
                if self._inherited is None:
                    _run_forkserver()
                process.start()
            except (OSError, EOFError) as error:  # out of processes, memory or descriptors
                worker.log_error("not_started", reason=str(error))
                self._delay(worker)
            else:
                worker.process, worker.started_at = process, now

    def _kill_stalled(self) -> None:
        """Kill the processes whose event loop does not turn any more; they are then replaced."""
        now = time.monotonic()
        for worker in self._workers:
            pid = None if worker.process is None else worker.process.pid
            if pid is None or not worker.clock.is_stalled(worker.serving.turns.count, now):
                continue
            if not is_traced(pid):
                _log.error("loop_stalled", name=worker.name, pid=pid, stall_s=self._stall_s)
                dump_and_kill(pid)

    def _reap(self) -> None:
        for worker in self._workers:
            code = None if worker.process is None else worker.process.exitcode
            if code is None or self._exit_code is not None:
                continue
            worker.process = None
            if worker.number is None:
                worker.is_overdue = code == OVERDUE
            # By a signal, such as that of a machine without memory, it may end at any time.
            elif code > 0 and not any(one.serving.has_served for one in self._workers):
                self._exit_code = code  # it has logged the reason; to start it again is no help
                continue
            pause_s = self._delay(worker)
            worker.log_error("died", exit_code=code, next_start_in_s=pause_s)

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
        """Wait for the processes to finish their requests; kill those that do not end."""
        self._terminate()
        ends_at = time.monotonic() + self._grace_s + KILL_AFTER_S
        for worker in self._workers:
            if worker.process is None:
                continue
            worker.process.join(max(0.0, ends_at - time.monotonic()))
            if worker.process.exitcode is None:
                worker.log_error("killed", pid=worker.process.pid)
                worker.process.kill()
                worker.process.join()


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


def _is_forkable() -> bool:
    """True if this process has no other thread than that of Arrow's allocator, which may fork.

    A fork has no other threads than the one that it was made by, but the locks that they hold.
    """
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return len([name for name in names if "jemalloc" not in name]) == 1


def _count_as(name: str, metrics_folder: str) -> None:
    """Count what this process does under `name` in the files of the folder."""
    os.environ[METRICS_FOLDER] = metrics_folder
    # The files of a process are its successor's: counts go on, and need no room on a full disk.
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]
    record_pid(Path(metrics_folder), name)


def _run(
    work: Callable[[], None], name: str, metrics_folder: str, inherited: socket | None
) -> None:
    """Do `work` in a process of its own, and end it when the supervisor is gone."""
    if inherited is not None:
        # The handlers, too, are another process's: to raise SystemExit while the loop starts.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        inherited.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _count_as(name, metrics_folder)
    threading.Thread(target=_end_with_parent, args=(metrics_folder,), daemon=True).start()
    dump_on_signal()
    work()
    end_now()


def _end_with_parent(metrics_folder: str) -> None:
    """End this process once the supervisor has ended, or the process that it was forked from.

    A supervisor that was killed has not removed its folder, which takes memory: that is done here.
    Before the signal, which ends a process at once that has only begun.
    """
    supervisor, forked_by = parent_process(), os.getppid()
    # Without the process that it was forked from, the supervisor counts it as ended.
    while supervisor is not None and supervisor.is_alive() and os.getppid() == forked_by:
        supervisor.join(LOOK_S)
    # A fork holds the pipe by which another one would learn that their parent has ended.
    if supervisor is None or supervisor.pid == forked_by:
        shutil.rmtree(metrics_folder, ignore_errors=True)
    elif not supervisor.is_alive():
        _remove_unlocked(Path(metrics_folder))
    os.kill(os.getpid(), signal.SIGTERM)


def _remove_unlocked(folder: Path) -> None:
    """Remove `folder` if its supervisor has ended.

    The pipe that says so is closed by one that runs, too: once it counts this process as ended.
    """
    with suppress(OSError):  # such as: another process has removed it
        for _ in range(_ATTEMPTS):
            try:
                _remove(folder)
                return
            except BlockingIOError:  # one removes it now, or the supervisor is about to end
                time.sleep(_ATTEMPT_S)


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
def _locked(folder: str | Path, lock: int = fcntl.LOCK_SH) -> Iterator[None]:
    """Show other services that `folder` is in use: the lock ends with the last process of this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of services of which all processes were killed at once.

    They take memory, and a service that is killed for the lack of it is started again.
    """
    for folder in parent.glob(f"{_METRICS_PREFIX}*"):
        with suppress(OSError):  # in use, or another user's
            if time.time() - folder.stat().st_mtime < _NEW_S:
                continue
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove `folder`. Raises BlockingIOError if a process has it locked, and other OSErrors."""
    with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        shutil.rmtree(folder)


@contextmanager
def _shared_metrics(names: Sequence[str]) -> Iterator[str]:
    """Let processes of these names count together within, through files in a folder: its path.

    prometheus_client maps them into memory: to write to a page that a full disk has no room for is
    SIGBUS, the end of the process. So their room is taken here, where its lack is an OSError.
    """
    memory = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix=_METRICS_PREFIX, dir=memory) as folder, _locked(folder):
        _remove_abandoned(Path(folder).parent)
        for name in names:
            reserve_pid_file(Path(folder), name)
            for kind, size in _METRICS_BYTES.items():
                with (Path(folder) / f"{kind}_{name}.db").open("xb") as file:
                    os.posix_fallocate(file.fileno(), 0, size)
        os.environ[METRICS_FOLDER] = folder
        try:
            yield folder
        finally:
            del os.environ[METRICS_FOLDER]
