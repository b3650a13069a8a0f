"""Rows summed up: how many over time by decision, and which values occur most.

What the catalog counts is taken from there; only segments it cannot answer for are read.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import pyarrow as pa

from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, Query
from analytics.query.reader import Reader
from analytics.statistics.top_values import NOTHING, Totals, totals
from analytics.statistics.value_index import Lookup
from analytics.statistics.zone_maps import COUNTED_COLUMNS, known_counts, plan
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

BUCKETS_MAX: Final = 10_000
"""How many buckets one summary may have: a year of hours fits."""

TOP_MAX: Final = 10
TOP_PARAMETERS: Final = ("event", "package", "actor", "decision")
"""The filters whose most frequent values a summary names."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = timedelta(microseconds=1)
_FIRST_INSTANT: Final = datetime.min.replace(tzinfo=UTC)


class TooManyBuckets(InvalidQuery):
    """A window too long for its buckets."""

    def __init__(self) -> None:
        super().__init__(
            f"more than {BUCKETS_MAX} buckets: narrow since and until, or ask for longer buckets"
        )


class Bucket(StrEnum):
    """How long one bucket is; buckets begin at full minutes, hours or days, UTC."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """From one bucket's start to the next."""
        return _LENGTHS[self]

    def start(self, instant: datetime) -> datetime:
        """The start of the bucket that `instant` falls into."""
        return _EPOCH + (instant - _EPOCH) // self.length * self.length


_LENGTHS: Final = {
    Bucket.MINUTE: timedelta(minutes=1),
    Bucket.HOUR: timedelta(hours=1),
    Bucket.DAY: timedelta(days=1),
}


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """One bucket's rows by decision; `other` are rows without an install decision."""

    start: datetime
    allowed: int
    blocked: int
    other: int


@dataclass(frozen=True, slots=True)
class ValueCount:
    """How many rows have this value."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """`buckets` without gaps, oldest first; `top` by parameter, most frequent first."""

    total: int
    buckets: list[BucketCounts]
    top: dict[str, list[ValueCount]]


def summarise(
    reader: Reader, snapshot: Snapshot, asked: Query, floor: datetime | None, bucket: Bucket
) -> Summary:
    """The summary of the rows of `asked` from `floor` on.

    The buckets fill the window that was asked for, as far as the floor allows; an end that was
    left open is where the rows end. Raises TooManyBuckets, StoreFault.
    """
    query = asked.not_before(floor)
    first = None if asked.since is None or query.since is None else bucket.start(query.since)
    last = None if query.until is None else bucket.start(_last_before(query.until))
    if first is not None and last is not None:
        _starts(first, last, bucket)  # refused before anything is read
    planned = plan(snapshot, query)
    counts = over_time(reader, planned, query, bucket)
    decisions: Counter[str] = Counter()
    for (_, decision), rows in counts.items():
        decisions[decision] += rows
    return Summary(
        total=decisions.total(),
        buckets=_fill(counts, first, last, bucket),
        top={
            name: _top(decisions)
            if name == "decision"
            else most_frequent(reader, planned, query, FILTER_COLUMNS[name])
            for name in TOP_PARAMETERS
        },
    )


def _last_before(until: datetime) -> datetime:
    # Before the first instant there is there is none; no row is of either.
    return max(until, _FIRST_INSTANT + _INSTANT) - _INSTANT


def over_time(
    reader: Reader, planned: Snapshot, query: Query, bucket: Bucket
) -> Counter[tuple[datetime, str]]:
    """How many rows fall into each bucket with each decision ("" for none)."""
    counts: Counter[tuple[datetime, str]] = Counter()
    unknown = []
    known = _Known(reader, query, planned.watermark)
    for segment in planned.segments:
        decisions = known.counts(segment, "decision")
        start = bucket.start(segment.min_created_at)
        if decisions is None or start != bucket.start(segment.max_created_at):
            unknown.append(segment)
        else:
            # Only what there is: a bucket begins and ends the summary if it has a row.
            counts.update({(start, one): rows for one, rows in decisions.items() if rows})
    rest = replace(planned, segments=tuple(unknown))
    for start, decision, rows in reader.count_over_time(rest, query, bucket.length):
        counts[start, decision] += rows
    return counts


class _Known:
    """How many rows of a query a segment has by event or decision, of the catalog or learnt."""

    def __init__(self, reader: Reader, query: Query, watermark: int) -> None:
        self._lookup = None if reader.values is None else Lookup(reader.values, query)
        self._query = query
        self._watermark = watermark

    def counts(self, segment: Segment, column: str) -> Mapping[str, int] | None:
        """The rows by value of `column` ("": null), or None: not known."""
        counts = known_counts(segment, self._query, self._watermark, column)
        if counts is not None or self._lookup is None:
            return counts
        kinds = self._lookup.by_kind(segment, self._watermark)
        if kinds is None:
            return None
        learnt: Counter[str] = Counter()
        for kind, rows in kinds.items():
            learnt[(kind.event if column == "event" else kind.decision) or ""] += rows
        return learnt


def most_frequent(reader: Reader, planned: Snapshot, query: Query, column: str) -> list[ValueCount]:
    """The TOP_MAX most frequent values of `column`, of the catalog or learnt; the rest is read."""
    if column in COUNTED_COLUMNS:
        known = _Known(reader, query, planned.watermark)
        counts: Counter[str] = Counter()
        left = []
        for segment in planned.segments:
            counted = known.counts(segment, column)
            if counted is None:
                left.append(segment)
            else:
                counts.update(counted)
        found = Totals(pa.array(counts, pa.string()), pa.array(counts.values(), pa.int64()))
    elif reader.values is None:
        found, left = NOTHING, list(planned.segments)
    else:
        found, left = totals(reader.values, planned.segments, query, planned.watermark, column)
    # A value that is rare in what is read may be frequent in the rest: added up, then cut off.
    limit = None if len(found.texts) else TOP_MAX
    rest = reader.count_values(replace(planned, segments=tuple(left)), query, column, limit)
    if rest.num_rows:
        found = found.plus(_one(rest["value"]), _one(rest["rows"]))
    return [ValueCount(value, rows) for value, rows in found.top(TOP_MAX)]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _top(counts: Counter[str]) -> list[ValueCount]:
    """The most frequent values; of equals the one that sorts first. No value is no value."""
    ranked = sorted((-rows, value) for value, rows in counts.items() if value and rows)
    return [ValueCount(value, -rows) for rows, value in ranked[:TOP_MAX]]


def _fill(
    counts: Counter[tuple[datetime, str]],
    first: datetime | None,
    last: datetime | None,
    bucket: Bucket,
) -> list[BucketCounts]:
    """One entry for each bucket from `first` to `last`, or to where the counts end."""
    starts = [start for start, _ in counts]
    if not starts and (first is None or last is None):
        return []
    others = _others(counts)
    return [
        BucketCounts(start, counts[start, "ALLOWED"], counts[start, "BLOCKED"], others[start])
        for start in _starts(first or min(starts), last or max(starts), bucket)
    ]


def _others(counts: Counter[tuple[datetime, str]]) -> Counter[datetime]:
    others: Counter[datetime] = Counter()
    for (start, decision), rows in counts.items():
        if decision not in {"ALLOWED", "BLOCKED"}:
            others[start] += rows
    return others


def _starts(first: datetime, last: datetime, bucket: Bucket) -> list[datetime]:
    """The starts of the buckets from `first` to `last`. Raises TooManyBuckets."""
    buckets = (last - first) // bucket.length + 1
    if buckets > BUCKETS_MAX:
        raise TooManyBuckets
    return [first + number * bucket.length for number in range(buckets)]
