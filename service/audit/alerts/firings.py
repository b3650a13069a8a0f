"""When a rule fires: computed of counts over time, alike for what happens and for a backtest.

Windows are summed for all keys at once, in Arrow: the rows of a window are those before its end
less those before its beginning. Only the last of what fires becomes objects.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.retention import RETENTION_DAYS, Tier
from analytics.query.buckets import Bucket
from service.audit.alerts.rules import AlertRule
from service.core.errors import Invalid

SILENT_FOR: Final = timedelta(hours=1)
"""How long a rule says nothing more of the same value after it fired."""

USUAL: Final = ((timedelta(weeks=1), 4), (timedelta(days=1), 5))
"""The windows that are usual: those of so many weeks before, or else of so many days."""

USUAL_MIN: Final = 3
"""In so many of them a key must have rows."""

NOTHING_USUAL: Final = Invalid.of(
    "rows are kept for {days} days: the window of a silence must be shorter, because it is compared"
    " with those of at least {least} days before",
    field="window",
    days=7,
    least=USUAL_MIN,
)


class Firing(NamedTuple):
    """A rule fired for the rows of `key` ("" without `per`) from `since` to before `until`.

    It fired at the rows of the bucket `fired_at`; of a silence, the hour that ended it.
    """

    key: str
    fired_at: datetime
    since: datetime
    until: datetime
    rows: int
    usual: int | None = None


class Fires(NamedTuple):
    """How often a rule fires, and the last of its firings, oldest first."""

    total: int
    last: Sequence[Firing]


Fired = Sequence[tuple[str, datetime]]
"""For which keys a rule fired already, and when."""


def usual_before(rule: AlertRule, tier: str) -> list[timedelta]:
    """How long before a silence the windows are that it is compared with. Raises NOTHING_USUAL."""
    days = RETENTION_DAYS[Tier(tier)]
    for step, most in USUAL:
        # The last full hour ended up to an hour ago.
        seen = days and (timedelta(days) - rule.length - Bucket.HOUR.length) // step
        if seen is None or seen >= USUAL_MIN:
            return [step * number for number in range(1, min(most, seen or most) + 1)]
    raise NOTHING_USUAL(days=days, least=USUAL_MIN)


def bursts(rule: AlertRule, counts: pa.Table, since: datetime, fired: Fired, most: int) -> Fires:
    """Where a window that ends with a minute from that of `since` on has enough rows."""
    series = _Series.of(rule, counts, fired, max(rule.length, SILENT_FOR))
    rows = series.rows_before(pc.add(series.places, 1), rule.length)
    is_new = pc.greater_equal(series.minutes(series.places), Bucket.MINUTE.number(since))
    is_full = pc.and_(is_new, pc.greater_equal(rows, rule.at_least))
    full = pa.table({"place": series.places, "rows": rows}).filter(is_full)
    return series.fires(rule, full, SILENT_FOR, most)


def silences(
    rule: AlertRule,
    counts: pa.Table,
    hours: Sequence[datetime],
    before: Sequence[timedelta],
    fired: Fired,
    most: int,
) -> Fires:
    """Where the window before one of `hours` has far fewer rows than those so long `before`.

    Usual is their mean; a key with rows in fewer than USUAL_MIN of them has nothing usual.
    """
    silent = max(SILENT_FOR, rule.length)
    series = _Series.of(rule, counts, fired, max(before) + silent, hours)
    places = series.at(hours)
    past = [series.rows_before(pc.subtract(places, _minutes(each)), rule.length) for each in before]
    mean = pc.divide(pc.cast(reduce(pc.add, past), pa.float64()), len(before))
    usual = pc.cast(pc.round(mean, round_mode="half_to_even"), pa.int64())
    weeks = reduce(pc.add, [pc.cast(pc.greater(each, 0), pa.int64()) for each in past])
    rows = series.rows_before(places, rule.length)
    is_usual = pc.and_(pc.greater_equal(usual, rule.at_least), pc.greater_equal(weeks, USUAL_MIN))
    is_less = pc.less_equal(pc.multiply(rows, 100), pc.multiply(usual, rule.percent))
    quiet = pa.table({"place": places, "rows": rows, "usual": usual})
    return series.fires(rule, quiet.filter(pc.and_(is_usual, is_less)), silent, most)


def _minutes(span: timedelta) -> int:
    return span // Bucket.MINUTE.length


@dataclass(frozen=True, slots=True)
class _Series:
    """Rows by key and minute in one line, on which each key has a place for each minute.

    `places` are those with rows, in order, `totals` the rows before each of them, and all rows.
    Between the keys lies more time than any window, or silence after a firing, takes.
    """

    keys: pa.StringArray
    first: int
    span: int
    places: pa.Int64Array
    totals: pa.Int64Array
    fired: Sequence[int]

    @classmethod
    def of(
        cls,
        rule: AlertRule,
        counts: pa.Table,
        fired: Fired,
        reach: timedelta,
        asked: Sequence[datetime] = (),
    ) -> Self:
        """The counts of `rule`; around them, and what is `asked`, nothing reaches further."""
        keys = counts["value"].combine_chunks().dictionary_encode()
        minutes = pc.multiply(counts["step"], _minutes(rule.bucket.length)).combine_chunks()
        told = [(key, Bucket.MINUTE.number(at)) for key, at in fired]
        bounds = [*(minute for _, minute in told), *map(Bucket.MINUTE.number, asked)]
        bounds += [at for at in pc.min_max(minutes).as_py().values() if at is not None]
        first = min(bounds, default=0) - _minutes(reach)
        span = max(bounds, default=0) + _minutes(reach) - first
        codes = keys.indices.cast(pa.int64())
        line = pa.table(
            {
                "place": pc.add(pc.multiply(codes, span), pc.subtract(minutes, first)),
                "rows": counts["rows"],
            }
        ).sort_by("place")
        totals = pc.cumulative_sum(line["rows"]).combine_chunks()
        codes_told = pc.index_in(pa.array([key for key, _ in fired], pa.string()), keys.dictionary)
        places_told = [
            code * span + at - first
            for code, (_, at) in zip(codes_told.to_pylist(), told, strict=True)
            if code is not None
        ]
        return cls(
            keys.dictionary,
            first,
            span,
            line["place"].combine_chunks(),
            pa.concat_arrays([pa.array([0], pa.int64()), totals]),
            sorted(places_told),
        )

    def at(self, instants: Sequence[datetime]) -> pa.Int64Array:
        """The places of these instants, of all keys."""
        minutes = [Bucket.MINUTE.number(instant) - self.first for instant in instants]
        starts = range(0, len(self.keys) * self.span, self.span)
        return pa.array([start + minute for start in starts for minute in minutes], pa.int64())

    def minutes(self, places: pa.Int64Array) -> pa.Int64Array:
        """The minutes of `places`, counted from 1970."""
        keys = pc.multiply(pc.divide(places, self.span), self.span)
        return pc.add(pc.subtract(places, keys), self.first)

    def rows_before(self, places: pa.Int64Array, window: timedelta) -> pa.Int64Array:
        """The rows in the windows that end before `places`."""
        begin = pc.search_sorted(self.places, pc.subtract(places, _minutes(window)))
        end = pc.search_sorted(self.places, places)
        return pc.subtract(self.totals.take(end), self.totals.take(begin))

    def fires(self, rule: AlertRule, found: pa.Table, silent: timedelta, most: int) -> Fires:
        """What fires of the windows `found`, by place: `silent` before and after others."""
        told = found.take(self._told(found["place"].to_pylist(), _minutes(silent)))
        keys = self.keys.take(pc.divide(told["place"], self.span))
        told = told.append_column("at", self.minutes(told["place"])).append_column("key", keys)
        told = told.sort_by([("at", "ascending"), ("key", "ascending")])
        last = told.slice(max(0, told.num_rows - most)).to_pylist()
        return Fires(told.num_rows, [_firing(rule, **line) for line in last])

    def _told(self, places: Sequence[int], silent: int) -> pa.Int64Array:
        told: list[int] = []
        number = 0
        while number < len(places):
            place = places[number]
            # On both sides: rows that arrive late may fill a window before one that fired.
            near = bisect_right(self.fired, place - silent)
            if near < len(self.fired) and self.fired[near] < place + silent:
                place = self.fired[near]
            else:
                told.append(number)
            number = bisect_left(places, place + silent, number)
        return pa.array(told, pa.int64())


def _firing(
    rule: AlertRule, at: int, key: str, rows: int, place: int, usual: int | None = None
) -> Firing:
    start = Bucket.MINUTE.numbered(at)
    until = start if rule.kind == "silence" else start + Bucket.MINUTE.length
    return Firing(key, start, until - rule.length, until, rows, usual)
