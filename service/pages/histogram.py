"""Rows over time as bars: what the macro `over_time` (templates/histogram.html) draws.

A page with a SummaryPanel (`summary_panel.load_summary_panel`) has all it takes: its template
flushes `summary`, calls `over_time(summary)` if `summary.total`, and adds the script histogram.js.
Others count rows in buckets of `bucket_of(query, now)`, and in those of `window_before` to compare
with the time before, and give both to `draw`; the macro `drawing(histogram)` draws that alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple

from analytics.model.filters import Query
from analytics.model.instants import format_us, later
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts
from service.pages.state import PageState

BARS_MAX: Final = 200
"""If there were more minutes or hours, hours or days are counted."""

DAYS_MAX: Final = 400
"""If there are more days, a bar is several: a tier may keep the rows of many years."""

LABELS_MIN: Final = 4
LABELS_MAX: Final = 6
PLOT, STRIP = 44, 18
"""Heights in pixels: of the drawing above the zero line, and of blocked rows below it."""

_DAY: Final = timedelta(days=1)
_INSTANT: Final = timedelta(microseconds=1)
_SECOND_INSTANT: Final = datetime.min.replace(tzinfo=UTC) + _INSTANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar(BucketCounts):
    """The rows from `start` on for one step, and how many there were in the window before.

    Its parts have heights in pixels: allowed and other rows on the scale of `most`, and blocked
    rows on their own, as a spike of them is lost among a thousand times more others. `narrow` is
    the link to only these rows.
    """

    until: datetime
    before: int | None
    allowed_height: float
    other_height: float
    blocked_height: float
    narrow: str


class AxisLabel(NamedTuple):
    """A boundary in time: the bar that begins there, its text, and whether a day begins there."""

    place: int
    text: str
    is_day: bool


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars without gaps, oldest first.

    `most` is the top of the scale of allowed and other rows, `most_blocked` that of blocked ones:
    round numbers that no bar exceeds. One that is 0 has no part of the drawing; `plot` is the
    height above the zero line. `before` is an SVG path of the window before, in bars and pixels.
    """

    bars: list[Bar]
    step: timedelta
    most: int
    most_blocked: int
    plot: int
    before: str

    @property
    def edges(self) -> list[str]:
        """The start of each bar and the end of the last one, as in a URL."""
        ends = [bar.until for bar in self.bars[-1:]]
        return [_text(instant) for instant in (*(bar.start for bar in self.bars), *ends)]

    @property
    def is_by_day(self) -> bool:
        """Whether the bars' starts differ by date, so that no time is shown."""
        return self.step >= _DAY

    @property
    def unit(self) -> str:
        """What a bar is, in words."""
        short = {bucket.length: bucket.value for bucket in Bucket}
        return short.get(self.step, f"{self.step.days} days")

    @property
    def scale(self) -> list[tuple[float, str]]:
        """The numbers beside the drawing: their pixels from its top, and their texts."""
        half, bottom = self.plot / 2, PLOT + STRIP
        marks = [(0, self.most), (half, self.most // 2), (bottom, self.most_blocked)]
        return [(self.plot, "0"), *((top, short_number(rows)) for top, rows in marks if rows)]

    @property
    def labels(self) -> Iterator[AxisLabel]:
        """Four to six labels at natural boundaries of UTC; fewer if there are fewer bars."""
        starts = [bar.start for bar in self.bars]
        is_long = bool(starts) and starts[-1] - starts[0] > 366 * _DAY
        for place in axis_places(starts, self.step):
            at, is_day = starts[place], self.step < _DAY and starts[place].time() == time.min
            by_day = f"{at:%b %Y}" if is_long else f"{at.day} {at:%b}"
            text = by_day if self.step >= _DAY else f"{at:%H:%M}"
            yield AxisLabel(place, f"{at:%a} {by_day}" if is_day else text, is_day)


def bucket_of(query: Query, now: datetime) -> Bucket:
    """The buckets to ask for: the shortest of which few enough fill the window."""
    if query.since is None:
        return Bucket.DAY
    # Not `query.since + _INSTANT`, which would overflow for the last possible instant.
    length = max((query.until or now) - query.since, _INSTANT)
    short = (Bucket.MINUTE, Bucket.HOUR)
    return next((each for each in short if length / each.length <= BARS_MAX), Bucket.DAY)


def window_before(query: Query, bucket: Bucket, now: datetime) -> Query | None:
    """`query` over as long a window before, shifted by whole buckets; None without a beginning."""
    until = min(query.until or now, now)
    if query.since is None or query.since >= until:
        return None
    # The last day begins at a full second, and is a fraction of one longer than a day.
    buckets = -((query.since - until + timedelta(seconds=1)) // bucket.length)
    shift = max(buckets, 1) * bucket.length
    try:
        return replace(query, since=query.since - shift, until=min(until - shift, query.since))
    except OverflowError:
        return None


def draw(
    buckets: Sequence[BucketCounts],
    bucket: Bucket,
    query: Query,
    state: PageState,
    before: Sequence[BucketCounts] = (),
) -> Histogram:
    """The histogram of a summary's `buckets`; each bar links to `state` limited to its time.

    `before` are the buckets of `window_before`.
    """
    size = -(-len(buckets) // DAYS_MAX) or 1
    counts = [_sum(buckets[at : at + size]) for at in range(0, len(buckets), size)]
    was = [_sum(before[at : at + size]) for at in range(0, len(before), size)][: len(counts)]
    others = [each.total - each.blocked for each in counts]
    others_before = [each.total - each.blocked for each in was]
    most = _round_up(max(others + others_before)) if any(others) else 0
    most_blocked = _round_up(max((each.blocked for each in counts), default=0))
    plot = (PLOT if most_blocked else PLOT + STRIP) if most else 0
    step = size * bucket.length

    def bar(each: BucketCounts, before: int | None) -> Bar:
        """Its window is clipped to the query's: its link must not widen the query."""
        since, end = max(each.start, query.since or each.start), later(each.start, step)
        until = min(end, query.until or end)
        allowed = _height(each.allowed, most, plot)
        return Bar(
            since,
            each.allowed,
            each.blocked,
            each.other,
            until=until,
            before=before,
            allowed_height=allowed,
            other_height=round(_height(each.total - each.blocked, most, plot) - allowed, 1),
            blocked_height=_height(each.blocked, most_blocked, PLOT + STRIP - plot),
            narrow=state.between(_text(since), _text(until)).href,
        )

    bars = [bar(each, was[n].total if n < len(was) else None) for n, each in enumerate(counts)]
    path = "".join(f"V{plot - _height(rows, most, plot):g}h1" for rows in others_before if most)
    return Histogram(bars, step, most, most_blocked, plot, path and f"M0 {plot}{path}")


def _sum(buckets: Sequence[BucketCounts]) -> BucketCounts:
    return BucketCounts(
        buckets[0].start,
        sum(each.allowed for each in buckets),
        sum(each.blocked for each in buckets),
        sum(each.other for each in buckets),
    )


def _height(rows: int, most: int, pixels: int) -> float:
    """The height of `rows` on a scale of up to `most`. Few rows are still visible."""
    return max(round(pixels * rows / most, 1), 1.5) if rows else 0


def _every(minutes: int) -> Callable[[datetime], object]:
    return lambda at: (at.toordinal() * 1_440 + at.hour * 60 + at.minute) // minutes


_MINUTES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1_440)
_BOUNDARIES: Final[tuple[Callable[[datetime], object], ...]] = (
    *map(_every, _MINUTES),
    lambda at: (at.toordinal() - 1) // 7,  # the first of all days was a Monday
    lambda at: (at.year, at.month, at.day >= 15),
    lambda at: (at.year, at.month),
    lambda at: (at.year, (at.month - 1) // 3),
    lambda at: at.year,
)
"""From fine to coarse, what changes at a boundary."""


def axis_places(starts: Sequence[datetime], step: timedelta) -> list[int]:
    """The bars, of those that begin at `starts`, whose beginnings are labelled on the axis.

    At the finest boundaries of which there are few enough; if these are too few, at every nth of
    the next finer ones.
    """
    previous = [max(starts[0], _SECOND_INSTANT) - _INSTANT, *starts] if starts else []
    finer = places = list(range(len(starts)))
    for key in _BOUNDARIES[len(_MINUTES) - 1 if step >= _DAY else 0 :]:
        changes = enumerate(zip(previous, starts, strict=False))
        finer, places = places, [n for n, (a, b) in changes if key(a) != key(b)]
        if len(places) <= LABELS_MAX:
            break
    if len(places) > LABELS_MAX:
        return places[:: -(-len(places) // LABELS_MAX)]
    thinned = finer[:: -(-len(finer) // LABELS_MAX) or 1]
    return places if len(places) >= LABELS_MIN else max(places, thinned, key=len)


def short_number(rows: int) -> str:
    """A round number for the axis: `400`, `2.5k`, `40k`, `2M`."""
    units = ((1_000_000, "M"), (1_000, "k"), (1, ""))
    return next((f"{rows / unit:g}{letter}" for unit, letter in units if rows >= unit), "0")


def _round_up(rows: int) -> int:
    """The next number of the form 1, 2, 4 or 5 times a power of ten: half of it is round, too."""
    scale = 10 ** max(len(str(rows)) - 1, 0)
    return next(scale * step for step in (1, 2, 4, 5, 10) if scale * step >= rows) if rows else 0


def _text(instant: datetime) -> str:
    return format_us(instant).replace(".000000Z", "Z")
