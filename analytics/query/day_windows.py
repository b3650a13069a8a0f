"""Which days a page looks through at a time: few where rows are many, many where they are few."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final

WINDOW_GROWTH: Final = 4
"""Each window is for this many times the days, or the rows, of the one before: 1, 4, 16 …"""


def day_windows(
    days: Sequence[date], wanted: int, rows_of: Callable[[date], int | None]
) -> Iterator[list[date]]:
    """`days` in order, cut into windows that may hold `wanted` rows together.

    `rows_of` says at most how many rows of a day belong to the page (0: it is left out), or None if
    that is unknown; then a window has 1, 4, 16 … days. Nothing is asked of days not reached.
    """
    window: list[date] = []
    rows, is_known, length = 0, True, 1
    for day in days:
        estimated = rows_of(day)
        if estimated == 0:
            continue
        window.append(day)
        rows += estimated or 0
        is_known &= estimated is not None
        if rows >= wanted or (not is_known and len(window) >= length):
            yield window
            window, rows, is_known = [], 0, True
            wanted *= WINDOW_GROWTH
            length *= WINDOW_GROWTH
    if window:
        yield window
