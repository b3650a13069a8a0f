"""A summary's buckets as the bars of a histogram: a readable number, at round instants."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.model.filters import Query
from analytics.model.instants import format_us
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts
from service.pages.state import State

BARS_MAX: Final = 64
HEIGHT: Final = 100
"""Height of the drawing in its own units; the page scales it."""

_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday: weeks begin there
_STEPS: Final = tuple(
    [timedelta(minutes=minutes) for minutes in (1, 5, 15)]
    + [timedelta(hours=hours) for hours in (1, 3, 6, 12)]
    + [timedelta(days=days) for days in (1, 2, 7, 28, 91, 364, 3_640)]
)
_INSTANT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """The rows from `start` on for one step.

    Heights are in units of the drawing: of allowed and other rows on the scale of `most`, and of
    blocked rows on their own scale, as a spike of them is lost among a thousand times more others.
    """

    start: datetime
    until: datetime
    allowed: int
    blocked: int
    other: int
    allowed_height: int
    other_height: int
    blocked_height: int
    narrow: str
    """The link to only these rows."""

    @property
    def total(self) -> int:
        """All rows of the bar."""
        return self.allowed + self.blocked + self.other


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars without gaps, oldest first.

    `most` is the top of the scale of allowed and other rows, `most_blocked` that of blocked ones:
    round numbers that no bar exceeds, 0 without such rows.
    """

    bars: list[Bar]
    step: timedelta
    most: int
    most_blocked: int

    @property
    def edges(self) -> list[str]:
        """The start of each bar and the end of the last one, as in a URL."""
        ends = [bar.until for bar in self.bars[-1:]]
        return [_text(instant) for instant in (*(bar.start for bar in self.bars), *ends)]

    @property
    def is_by_day(self) -> bool:
        """Whether the bars' starts differ by date, so that no time is shown."""
        return self.step >= timedelta(days=1)


def bucket_of(query: Query, now: datetime) -> Bucket:
    """The buckets to request: the longest that are no longer than a bar."""
    if query.since is None:
        return Bucket.DAY
    # Not `query.since + _INSTANT`, which would overflow for the last possible instant.
    length = max((query.until or now) - query.since, _INSTANT)
    step = _step(length)
    return max((each for each in Bucket if each.length <= step), key=lambda each: each.length)


def draw(buckets: Sequence[BucketCounts], bucket: Bucket, query: Query, state: State) -> Histogram:
    """The histogram of a summary's `buckets`; each bar links to `state` limited to its time."""
    if not buckets:
        return Histogram([], bucket.length, 0, 0)
    length = buckets[-1].start - buckets[0].start + bucket.length
    step = max(_step(length), bucket.length)
    sums: dict[datetime, list[int]] = {}
    for counted in buckets:
        counts = sums.setdefault(_start(counted.start, step), [0, 0, 0])
        for place, rows in enumerate((counted.blocked, counted.allowed, counted.other)):
            counts[place] += rows
    most = _round_up(max(allowed + other for _, allowed, other in sums.values()))
    most_blocked = _round_up(max(blocked for blocked, _, _ in sums.values()))
    scales = most, most_blocked
    bars = [_bar(start, step, counts, scales, query, state) for start, counts in sums.items()]
    return Histogram(bars, step, most, most_blocked)


def _bar(
    start: datetime,
    step: timedelta,
    counts: list[int],
    scales: tuple[int, int],
    query: Query,
    state: State,
) -> Bar:
    """A bar, whose window is clipped to the query's: its link must not widen the query."""
    since = max(start, query.since or start)
    end = _end(start, step)
    until = min(end, query.until or end)
    blocked, allowed, other = counts
    most, most_blocked = scales
    return Bar(
        start=since,
        until=until,
        allowed=allowed,
        blocked=blocked,
        other=other,
        allowed_height=_height(allowed, most),
        other_height=_height(allowed + other, most) - _height(allowed, most),
        blocked_height=_height(blocked, most_blocked),
        narrow=state.between(_text(since), _text(until)).href,
    )


def _height(rows: int, most: int) -> int:
    """The height of `rows` on a scale up to `most`. Few rows are still visible."""
    return max(round(HEIGHT * rows / most), 2) if rows else 0


def _round_up(rows: int) -> int:
    """The next number of the form 1, 2, 4 or 5 times a power of ten: half of it is round, too."""
    scale = 10 ** max(len(str(rows)) - 1, 0)
    return next(scale * step for step in (1, 2, 4, 5, 10) if scale * step >= rows) if rows else 0


def _step(length: timedelta) -> timedelta:
    """The shortest step of which BARS_MAX cover `length`, wherever the first one begins."""
    return next((step for step in _STEPS if length / step <= BARS_MAX - 1), _STEPS[-1])


def _start(instant: datetime, step: timedelta) -> datetime:
    try:
        return _EPOCH + (instant - _EPOCH) // step * step
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _end(start: datetime, step: timedelta) -> datetime:
    try:
        return start + step
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _text(instant: datetime) -> str:
    return format_us(instant).replace(".000000Z", "Z")
