"""Taking one figure: many rounds after some that warm up, and how far they spread."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Barrier, BrokenBarrierError, Thread
from typing import Final

from benchmarks.engines import Send

ROUNDS: Final = 25
ROUNDS_MAX: Final = 1_000
QUICK_S: Final = 0.5
"""What is quick is done so many times, or for so long: a few would tell of one moment only."""

ROUNDS_MIN: Final = 15
LONG_S: Final = 10.0
"""After so long fewer rounds will do."""
ROUNDS_LEAST: Final = 3
ENDLESS_S: Final = 40.0
"""After so long no more than these are waited for."""


def nearest(values: list[float], percent: float) -> float:
    """The value that `percent` of the sorted `values` do not exceed (the nearest rank)."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def spread(values: list[float]) -> dict[str, float]:
    """Median, tenth and ninetieth percentile, and of how many."""
    ordered = sorted(values)
    return {
        "median": nearest(ordered, 50),
        "p10": nearest(ordered, 10),
        "p90": nearest(ordered, 90),
        "rounds": len(values),
    }


def timed_ms(work: Callable[[], object]) -> float:
    """How long `work` takes once."""
    began_at = time.perf_counter()
    work()
    return (time.perf_counter() - began_at) * 1000


def add_rounds(times: list[float], work: Callable[[], object], part: float = 1.0) -> None:
    """Add what runs of `work` take, until `times` has `part` of all rounds there will be."""
    while not _has(times, part):
        times.append(timed_ms(work))


def _has(times: list[float], part: float) -> bool:
    spent_s = sum(times) / 1000
    rounds = ROUNDS if spent_s < LONG_S else ROUNDS_MIN if spent_s < ENDLESS_S else ROUNDS_LEAST
    if len(times) < rounds * part:
        return False
    return spent_s >= QUICK_S * part or len(times) >= ROUNDS_MAX * part


def ingest(
    open_client: Callable[[], AbstractContextManager[Send]], clients: int, rows: int, seconds: float
) -> dict[str, float]:
    """How many rows a second `clients` add at once, and what a request takes them."""
    ready = Barrier(clients + 1)
    ends: list[float] = []
    times: list[float] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with open_client() as send:
                send()
                ready.wait()
                gives_up_at = time.perf_counter() + seconds
                while time.perf_counter() < gives_up_at:
                    times.append(timed_ms(send))
                ends.append(time.perf_counter())
        except BaseException as failure:  # told below, in the thread that asked
            failures.append(failure)
            ready.abort()

    threads = [Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    with suppress(BrokenBarrierError):  # a client failed, and said why
        ready.wait()
    began_at = time.perf_counter()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    figures = spread(times)
    took = max(ends) - began_at
    return {
        "rows_per_s": len(times) * rows / took,
        "request_ms": figures["median"],
        "p90": figures["p90"],
    }
