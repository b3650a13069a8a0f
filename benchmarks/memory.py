"""Peak memory of a group of processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
            peak.mb = max(peak.mb, sum(map(_share_mb, pids())))

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


def _share_mb(pid: int) -> float:
    try:
        return line_mb(Path(f"/proc/{pid}/smaps_rollup"), "Pss")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0  # it ended meanwhile


def line_mb(path: Path, name: str) -> float:
    """A process's memory figure, in MB: VmRSS is the current one, VmHWM the peak."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)
