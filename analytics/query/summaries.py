"""Summaries: rows over time by decision, and the most frequent values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.model.filters import FILTER_COLUMNS, InvalidQuery, Query
from analytics.query.aggregates import TOP_MAX, top_of
from analytics.query.buckets import Bucket
from analytics.query.closed_sums import Top
from analytics.query.kept_sums import Sum
from analytics.query.reader import Reader
from analytics.storage.snapshot import Snapshot

BUCKETS_MAX: Final = 10_000
"""How many buckets one summary may have: a year of hours fits."""

TOP_PARAMETERS: Final = ("event", "package", "actor", "decision")
"""The filters whose most frequent values a summary names."""

_Window = tuple[datetime | None, datetime | None]
_INSTANT: Final = timedelta(microseconds=1)
_FIRST_INSTANT: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """One bucket's rows by decision; `other` are rows without an install decision."""

    start: datetime
    allowed: int
    blocked: int
    other: int

    @property
    def total(self) -> int:
        """All rows of the bucket."""
        return self.allowed + self.blocked + self.other


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
    reader: Reader,
    snapshot: Snapshot,
    asked: Query,
    floor: datetime | None,
    bucket: Bucket,
    tops: Sequence[str] = TOP_PARAMETERS,
    kept: Sum | None = None,
) -> Summary:
    """The summary of the rows of `asked` from `floor` on, with the top values of these filters.

    The buckets fill the window that was asked for, but do not begin before the floor; an open end
    is where the rows end. What is `kept` is not counted. Raises InvalidQuery, StoreFault.
    """
    query = asked.not_before(floor)
    window = _window(asked, query, bucket)
    if kept is not None and bucket is Bucket.DAY:
        counts = Counter(kept.times)
    else:
        counts = reader.count_over_time(snapshot, query, bucket)
    known = _kept_tops(kept, tops)
    missing = [column for column, values in known.items() if values is None]
    counted = reader.count_values_of(snapshot, query, missing, TOP_MAX) if missing else {}
    return _summary(counts, known | counted, tops, window, bucket)


def summary_of(
    kept: Sum,
    asked: Query,
    floor: datetime | None,
    bucket: Bucket,
    tops: Sequence[str] = TOP_PARAMETERS,
) -> Summary | None:
    """What `summarise` gives, if `kept` has all of it. Raises InvalidQuery."""
    window = _window(asked, asked.not_before(floor), bucket)
    key = (window, tuple(tops))
    found: Summary | None = kept.made.get(key)
    if found is None and bucket is Bucket.DAY:
        known = _kept_tops(kept, tops)
        if None not in known.values():
            found = kept.made[key] = _summary(Counter(kept.times), known, tops, window, bucket)
    return found


def _kept_tops(kept: Sum | None, tops: Sequence[str]) -> dict[str, Top | None]:
    """What is kept of the values of `tops`, by column; all but the decision."""
    columns = [FILTER_COLUMNS[name] for name in tops if name != "decision"]
    return {column: None if kept is None else kept.tops.get(column) for column in columns}


def _summary(
    counts: Counter[tuple[datetime, str]],
    known: Mapping[str, Top | None],
    tops: Sequence[str],
    window: _Window,
    bucket: Bucket,
) -> Summary:
    decisions: Counter[str] = Counter()
    for (_, decision), rows in counts.items():
        decisions[decision] += rows
    by_column = {**known, "decision": top_of(decisions, TOP_MAX)}
    return Summary(
        total=decisions.total(),
        buckets=_fill(counts, *window, bucket),
        top={
            name: [ValueCount(*pair) for pair in by_column[FILTER_COLUMNS[name]] or ()]
            for name in tops
        },
    )


def _window(asked: Query, query: Query, bucket: Bucket) -> _Window:
    """The first and the last bucket, where they do not depend on the rows."""
    first = None if asked.since is None or query.since is None else bucket.start(query.since)
    last = None if query.until is None else bucket.start(_last_before(query.until))
    if first is not None and last is not None:
        _starts(first, last, bucket)  # refused before anything is read
    return first, last


def _last_before(until: datetime) -> datetime:
    # No instant is before the first that Python can represent; no row is as old as that.
    return max(until, _FIRST_INSTANT + _INSTANT) - _INSTANT


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
    others: Counter[datetime] = Counter()
    for (start, decision), rows in counts.items():
        if decision not in {"ALLOWED", "BLOCKED"}:
            others[start] += rows
    return [
        BucketCounts(start, counts[start, "ALLOWED"], counts[start, "BLOCKED"], others[start])
        for start in _starts(first or min(starts), last or max(starts), bucket)
    ]


def _starts(first: datetime, last: datetime, bucket: Bucket) -> list[datetime]:
    """The starts of the buckets from `first` to `last`. Raises InvalidQuery."""
    buckets = (last - first) // bucket.length + 1
    if buckets > BUCKETS_MAX:
        raise InvalidQuery(
            f"more than {BUCKETS_MAX} buckets: narrow since and until, or ask for longer buckets"
        )
    return [first + number * bucket.length for number in range(buckets)]
