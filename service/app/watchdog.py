"""Notices an event loop that does not turn any more: a computation without end, or a lock.

Each loop counts its turns in shared memory. Its watcher counts only time in which the watcher ran:
time in which the machine, the supervisor or the container was suspended does not count.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import structlog

from service.core.exit_codes import ExitCode

BEAT_S: Final = 0.25
LOOK_S: Final = 0.5
LOOK_MAX_S: Final = 2 * LOOK_S
"""A look that comes later than this counts no more time: the watcher did not run, either."""

START_FACTOR: Final = 10
"""So many times longer a loop may take until its first turn: a start imports and opens files. It
waits for no database: settings and data dir are prepared before."""

DUMP_WAIT_S: Final = 1.0
DUMP_SIGNAL: Final = signal.SIGUSR2

_log = structlog.get_logger(__name__)


class Turns:
    """How often the event loop of a process has turned; shared with the process that watches it."""

    def __init__(self) -> None:
        # Without a lock: a process that is killed while it counts leaves nothing taken.
        self._count: Any = get_context("spawn").RawValue("Q", 0)

    @property
    def count(self) -> int:
        """The number so far; 0 before the loop serves."""
        return int(self._count.value)

    def reset(self) -> None:
        """Begin again, for another process."""
        self._count.value = 0

    async def keep_counting(self, observe: Callable[[float], object]) -> None:
        """Count in this event loop until cancelled; `observe` gets how late each turn was."""
        while True:
            self._count.value += 1
            due_at = time.monotonic() + BEAT_S
            await asyncio.sleep(BEAT_S)
            observe(max(0.0, time.monotonic() - due_at))


class Serving:
    """What a process shares with its watcher: that it has served, and its event loop's turns."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._has_served: Any = get_context("spawn").RawValue("b", 0)

    def __call__(self) -> None:
        """Called once the process serves."""
        self._has_served.value = 1

    @property
    def has_served(self) -> bool:
        """True from then on, also for the processes that replace it."""
        return bool(self._has_served.value)


class StallClock:
    """How long a loop has not turned, in time in which its watcher ran."""

    def __init__(self, stall_s: float) -> None:
        """Without a limit if `stall_s` is 0."""
        self._stall_s = stall_s
        self._turns = 0
        self._looked_at: float | None = None
        self._stalled_s = 0.0

    def is_stalled(self, turns: int, now: float) -> bool:
        """True once the loop has been at `turns` for longer than it may; `now` is monotonic."""
        passed_s = 0.0 if self._looked_at is None else min(now - self._looked_at, LOOK_MAX_S)
        self._looked_at = now
        if turns != self._turns:
            self._turns, self._stalled_s = turns, 0.0
        else:
            self._stalled_s += passed_s
        limit_s = self._stall_s * (1 if turns else START_FACTOR)
        return 0 < limit_s <= self._stalled_s


def dump_on_signal() -> None:
    """Write the stacks of all threads of this process to its log on DUMP_SIGNAL.

    Also while a function in C holds the interpreter's lock.
    """
    faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True)


def dump_and_kill(pid: int) -> None:
    """Have a process dump its stacks, if it can, and kill it."""
    with suppress(ProcessLookupError):
        os.kill(pid, DUMP_SIGNAL)
        time.sleep(DUMP_WAIT_S)
        os.kill(pid, signal.SIGKILL)


def is_traced(pid: int) -> bool:
    """True if a debugger is attached to the process, and may have stopped it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return any(
        line.startswith("TracerPid:") and line.split()[1] != "0" for line in status.splitlines()
    )


def end_when_stalled(turns: Turns, stall_s: float) -> None:
    """End this process, which has no supervisor, once its loop has not turned for `stall_s`.

    From a thread, which runs unless a function in C holds the interpreter's lock.
    """
    clock = StallClock(stall_s)

    def watch() -> None:
        while not clock.is_stalled(turns.count, time.monotonic()) or is_traced(os.getpid()):
            time.sleep(LOOK_S)
        _log.error("loop_stalled", pid=os.getpid(), stall_s=stall_s)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        os._exit(ExitCode.STALLED)

    if stall_s:
        threading.Thread(target=watch, name="watchdog", daemon=True).start()
