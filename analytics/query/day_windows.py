"""How many days are asked about at a time: few where rows are many, many where they are few."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Final

WINDOW_GROWTH: Final = 4
"""Each window spans this many times the days of the one before: 1, 4, 16 …"""


def windows(days: Sequence[date], length: int = 1) -> Iterator[Sequence[date]]:
    """`days` cut into runs of 1, 4, 16 … days, or of `length` and so on."""
    start = 0
    while start < len(days):
        yield days[start : start + length]
        start += length
        length *= WINDOW_GROWTH


def hopeful_windows(
    days: Sequence[date], hoped: Mapping[date, float], wanted: int
) -> Iterator[Sequence[date]]:
    """`days` cut into runs that may hold `wanted` rows, then 4, 16 … times as many.

    `hoped` are the rows expected of each day. Where they do not come, the next run hopes for more.
    """
    start = 0
    while start < len(days):
        end, rows = start, 0.0
        while end < len(days) and rows < wanted:
            rows += hoped.get(days[end], 0)
            end += 1
        yield days[start:end]
        start = end
        wanted *= WINDOW_GROWTH
