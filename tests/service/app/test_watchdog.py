"""When an event loop counts as stalled, by the time in which its watcher ran."""

import ctypes
import signal
import sys
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from service.app.watchdog import (
    LOOK_MAX_S,
    LOOK_S,
    START_FACTOR,
    StallClock,
    Turns,
    dump_on_signal,
    end_when_stalled,
)
from service.core.exit_codes import ExitCode
from tests.polling import HANG_S

STALL_S = 10.0
STALLS_ALONE_S = 0.5
PTRACE_SEIZE = 0x4206


def looks_until_stalled(
    clock: StallClock, turns: int, now: float, looks: int = 1_000
) -> int | None:
    """How many looks it takes, one each LOOK_S, until a loop that does not turn is stalled."""
    for number in range(looks):
        if clock.is_stalled(turns, now + number * LOOK_S):
            return number
    return None


def test_a_loop_that_does_not_turn_is_stalled_after_the_time() -> None:
    clock = StallClock(STALL_S)
    assert not any(clock.is_stalled(turns, turns * 1.0) for turns in range(1, 100))

    assert looks_until_stalled(clock, 99, 99.0) == STALL_S / LOOK_S


@pytest.mark.parametrize("away_s", [60.0, 86_400.0])
def test_a_watcher_that_was_stopped_counts_one_look(away_s: float) -> None:
    """A suspended machine, or a stopped container: its loops have not turned, and need not."""
    clock = StallClock(STALL_S)
    clock.is_stalled(1, 0.0)

    assert not clock.is_stalled(1, away_s)
    assert looks_until_stalled(clock, 1, away_s) == (STALL_S - LOOK_MAX_S) / LOOK_S


def test_a_loop_that_does_not_begin_is_stalled_later() -> None:
    """A start on a slow disk takes its time; one that never ends is begun again."""
    assert looks_until_stalled(StallClock(STALL_S), 0, 0.0) == START_FACTOR * STALL_S / LOOK_S


def test_without_a_limit_nothing_is_stalled() -> None:
    """COUNTERSIGN_STALL_S=0."""
    assert looks_until_stalled(StallClock(0.0), 1, 0.0) is None


def stall_alone(log: Path) -> None:
    """A process whose loop has turned once, and then waits for something that never comes."""
    sys.stderr = log.open("w")
    dump_on_signal()
    turns = Turns()
    turns._count.value = 1
    end_when_stalled(turns, STALLS_ALONE_S)
    wait_for_what_never_comes()


def wait_for_what_never_comes() -> None:
    """The function that the stacks must name."""
    signal.pause()


def start_stalling(log: Path) -> SpawnProcess:
    """`stall_alone` in a process."""
    process = get_context("spawn").Process(target=stall_alone, args=(log,))
    process.start()
    return process


@pytest.mark.slow
def test_a_process_without_a_supervisor_ends_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start_stalling(log)
    process.join(HANG_S)

    assert process.exitcode == ExitCode.STALLED
    assert "wait_for_what_never_comes" in log.read_text()


@pytest.mark.slow
def test_a_process_that_is_debugged_does_not_end(tmp_path: Path) -> None:
    """At a breakpoint nothing turns."""
    process = start_stalling(tmp_path / "log")
    try:
        attach_to(process.pid)
        process.join(4 * STALLS_ALONE_S)

        assert process.exitcode is None
    finally:
        process.kill()
        process.join(HANG_S)


def attach_to(pid: int | None) -> None:
    """Trace the process, as a debugger does, without stopping it."""
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(PTRACE_SEIZE, pid, None, None):
        pytest.skip("this machine lets no process trace another")
