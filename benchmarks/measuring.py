"""Measure one figure: many rounds after some that warm up, and their spread."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Barrier, BrokenBarrierError, Thread
from typing import Final

from benchmarks.engines import Send

ROUNDS: Final = 25
ROUNDS_MAX: Final = 1_000
QUICK_S: Final = 0.5
"""Fast work is repeated this often, or for this long: few rounds would show only a moment."""

ROUNDS_MIN: Final = 15
LONG_S: Final = 10.0
"""After this time fewer rounds suffice."""
ROUNDS_LEAST: Final = 3
ENDLESS_S: Final = 40.0
"""After this time only these rounds are waited for."""


def nearest(values: list[float], percent: float) -> float:
    """The value that `percent` of the sorted `values` do not exceed (the nearest rank)."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def spread(values: list[float]) -> dict[str, float]:
    """Median, tenth and ninetieth percentile, and the number of runs."""
    ordered = sorted(values)
    return {
        "median": nearest(ordered, 50),
        "p10": nearest(ordered, 10),
        "p90": nearest(ordered, 90),
        "rounds": len(values),
    }


def timed_ms(work: Callable[[], object]) -> float:
    """The duration of one run of `work`."""
    began_at = time.perf_counter()
    work()
    return (time.perf_counter() - began_at) * 1000


def add_rounds(times: list[float], work: Callable[[], object], part: float = 1.0) -> None:
    """Add durations of `work`, until `times` has `part` of all planned rounds."""
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
    """Rows per second that `clients` add concurrently, and the duration of a request."""
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
        except BaseException as failure:  # raised below, in the calling thread
            failures.append(failure)
            ready.abort()

    threads = [Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    with suppress(BrokenBarrierError):  # a client failed and recorded why
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
