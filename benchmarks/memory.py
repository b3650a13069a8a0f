"""Peak memory of a group of processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

EVERY_S: Final = 0.5


class Peak:
    """The highest total so far, in megabytes."""

    mb = 0.0


@contextmanager
def watching(pids: Callable[[], Sequence[int]]) -> Iterator[Peak]:
    """The peak of the processes that `pids` names during the block.

    For this process alone the peak is exact. For several, proportional shares are summed
    periodically, so that shared memory counts once.
    """
    peak, done = Peak(), Event()

    def watch() -> None:
        while not done.wait(EVERY_S):
            peak.mb = max(peak.mb, sum(map(share_mb, pids())))

    if pids() == [os.getpid()]:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
        yield peak
        peak.mb = line_mb(Path("/proc/self/status"), "VmHWM")
        return
    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def share_mb(pid: int) -> float:
    """The memory of a process, with its part of what it shares with others; 0 if it has ended."""
    try:
        return line_mb(Path(f"/proc/{pid}/smaps_rollup"), "Pss")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0  # it ended meanwhile


def processes_of(process_id: int) -> list[int]:
    """The process and its descendants."""
    found = [process_id]
    for each in found:  # which grows meanwhile
        with suppress(OSError):  # it has ended
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def line_mb(path: Path, name: str) -> float:
    """A process's memory figure, in MB: VmRSS is the current one, VmHWM the peak."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)
