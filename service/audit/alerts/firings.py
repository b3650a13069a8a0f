"""When a rule fires: computed of counts over time, alike for what happens and for a backtest."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final, NamedTuple, Self

from analytics.query.buckets import Bucket
from service.audit.alerts.rules import AlertRule

SILENT_FOR: Final = timedelta(hours=1)
"""How long a rule says nothing more of the same value after it fired."""

WEEKS: Final = 4
"""How many weeks before are what is usual on a weekday."""

Counts = Iterable[tuple[datetime, str, int]]
"""Rows by the start of a bucket and the value of `per`."""


class Firing(NamedTuple):
    """A rule fired for the rows of `key` ("" without `per`) from `since` to before `until`.

    `at` is the bucket at whose rows it fired; of a silence, the hour that ended it.
    """

    key: str
    at: datetime
    since: datetime
    until: datetime
    rows: int
    usual: int | None = None


Fired = Mapping[str, Sequence[datetime]]
"""When a rule fired already, by key."""


def bursts(rule: AlertRule, counts: Counts, since: datetime, fired: Fired) -> list[Firing]:
    """Where a window that ends with a minute from `since` on has enough rows, oldest first."""
    found: list[Firing] = []
    for key, minutes in _by_key(counts).items():
        last = sorted(fired.get(key, ()))
        for firing in _full_windows(rule, key, sorted(minutes.items())):
            if firing.at >= since and not _is_silent(firing.at, last):
                insort(last, firing.at)
                found.append(firing)
    return sorted(found, key=lambda firing: (firing.at, firing.key))


def _full_windows(
    rule: AlertRule, key: str, minutes: Sequence[tuple[datetime, int]]
) -> Iterator[Firing]:
    """Windows that end with a minute of rows: in between, no window gains any."""
    begin = total = 0
    for at, rows in minutes:
        until = at + Bucket.MINUTE.length
        total += rows
        while minutes[begin][0] < until - rule.length:
            total -= minutes[begin][1]
            begin += 1
        if total >= rule.at_least:
            yield Firing(key, at, until - rule.length, until, total)


def silences(
    rule: AlertRule, counts: Counts, hours: Sequence[datetime], fired: Fired
) -> list[Firing]:
    """Where the window before one of `hours` has far fewer rows than on this weekday before.

    Usual is the mean of WEEKS weeks; a key without rows in half of them has nothing usual.
    """
    found: list[Firing] = []
    for key, by_hour in sorted(_by_key(counts).items()):
        last, totals = sorted(fired.get(key, ())), _Totals.of(by_hour)
        for at in hours:
            before = [totals.within(at - week * _WEEK, rule.length) for week in _PAST]
            usual = round(sum(before) / WEEKS)
            rows = totals.within(at, rule.length)
            is_usual = usual >= rule.at_least and sum(map(bool, before)) * 2 > WEEKS
            if not is_usual or rows * 100 > usual * rule.percent:
                continue
            if not _is_silent(at, last, max(SILENT_FOR, rule.length)):
                insort(last, at)
                found.append(Firing(key, at, at - rule.length, at, rows, usual))
    return sorted(found, key=lambda firing: (firing.at, firing.key))


_WEEK: Final = timedelta(weeks=1)
_PAST: Final = range(1, WEEKS + 1)


def _by_key(counts: Counts) -> dict[str, dict[datetime, int]]:
    found: dict[str, dict[datetime, int]] = defaultdict(dict)
    for start, key, rows in counts:
        found[key][start] = found[key].get(start, 0) + rows
    return found


class _Totals(NamedTuple):
    """The hours with rows, in order, and how many rows there are before each, and in all."""

    hours: Sequence[datetime]
    rows: Sequence[int]

    @classmethod
    def of(cls, by_hour: Mapping[datetime, int]) -> Self:
        """The totals of rows by hour."""
        hours = sorted(by_hour)
        return cls(hours, [*accumulate(map(by_hour.__getitem__, hours), initial=0)])

    def within(self, until: datetime, window: timedelta) -> int:
        """How many rows the window before `until` has."""
        first, end = bisect_left(self.hours, until - window), bisect_left(self.hours, until)
        return self.rows[end] - self.rows[first]


def _is_silent(at: datetime, fired: Sequence[datetime], span: timedelta = SILENT_FOR) -> bool:
    """Whether one of `fired`, which are in order, is so near."""
    # On both sides: rows that arrive late may fill a window before one that fired.
    place = bisect_left(fired, at)
    return any(abs(at - each) < span for each in fired[max(0, place - 1) : place + 1])
