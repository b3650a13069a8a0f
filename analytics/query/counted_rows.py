"""Rows counted one by one: those of the journal, and of days that a bound of the query cuts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.row_groups import Decoded
from analytics.model.filters import Query, mask
from analytics.model.instants import midnight, utc_day
from analytics.query.closed_sums import DayCounts, add_to
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_index import HEAD_COLUMNS
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

STEP_BATCHES: Final = 512
"""How many batches one step adds: some 50 ms at first."""

_VALUE_BYTES: Final = 150


@dataclass(slots=True)
class CountedRows:
    """The rows of `query` in `segments` and `batches`, by day and decision and by value.

    On the day of its since none of them is older than `oldest`; on that of its until no row,
    counted or not, is newer than `newest`.
    """

    query: Query
    segments: tuple[Segment, ...]
    batches: tuple[JournalBatch, ...] = ()
    times: DayCounts = field(default_factory=dict)
    values: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {} for name in ("event", *HEAD_COLUMNS)}
    )
    oldest: datetime | None = None
    newest: datetime | None = None

    @classmethod
    def of(cls, decoded: Decoded, query: Query, segments: tuple[Segment, ...]) -> "CountedRows":
        """The rows of `segments`, and still of no batch. Raises StoreFault."""
        new = cls(query, segments)
        for segment in segments:
            for part in _parts(decoded, segment):
                if query.until is not None and part.first >= query.until:
                    new.newest = max(new.newest or part.last, part.last)
                elif query.since is None or part.last >= query.since:
                    new._include(part.rows(), segment.day)
        return new

    @property
    def distinct(self) -> int:
        """How many values it has."""
        return sum(map(len, self.values.values()))

    @property
    def size(self) -> int:
        """About how many bytes it takes, without the batches."""
        return _VALUE_BYTES * (self.distinct + len(self.times))

    def is_behind(self, snapshot: Snapshot) -> bool:
        """True if its batches are the first ones of the snapshot.

        Seqs follow commits, so what is added comes last: if the batch at the last place is the same
        one, so are all before it.
        """
        count, batches = len(self.batches), snapshot.batches
        return not count or (
            count <= len(batches) and batches[count - 1].first_seq == self.batches[-1].first_seq
        )

    def has_all_of(self, query: Query) -> bool:
        """True if no row lies between its bounds and those of `query`, which cut the same days."""
        return self._begins_with(query.since) and self._ends_with(query.until)

    def _begins_with(self, since: datetime | None) -> bool:
        own = self.query.since
        if own is None or since is None or since <= own:
            return own == since
        return self.oldest is None or since <= self.oldest

    def _ends_with(self, until: datetime | None) -> bool:
        own = self.query.until
        if own is None or until is None or self.newest is None:
            return own == until or self.newest is None
        return own == until or self.newest < min(own, until)

    def with_batches(self, decoded: Decoded, snapshot: Snapshot) -> "CountedRows":
        """With the batches that came since, STEP_BATCHES at most. Raises StoreFault."""
        new = self._copy()
        added = snapshot.batches[len(self.batches) :]
        part = added[:STEP_BATCHES]
        days: dict[date, list[pa.Table]] = {}
        for batch in part:
            days.setdefault(batch.day, []).append(decoded.batch_rows(batch))
        for day, tables in days.items():
            new._include(pa.concat_tables(tables), day)
        # The same tuple, once all are there: then it is current.
        new.batches = snapshot.batches if part == added else self.batches + part
        return new

    def from_later(self, decoded: Decoded, since: datetime) -> "CountedRows":
        """Without the rows before `since`, on the same day as its own. Raises StoreFault."""
        new = self._copy()
        new.query, new.oldest = replace(self.query, since=since), None
        until = since if self.query.until is None else min(since, self.query.until)
        left_out = replace(self.query, until=until)
        for part in self._parts_of(decoded, utc_day(since)):
            if part.first < since:
                rows = part.rows()
                new._tally(rows.filter(mask(left_out, rows)), utc_day(since), -1)
                new._record_oldest(rows.filter(mask(new.query, rows)))
            else:
                new.oldest = min(new.oldest or part.first, part.first)
        return new

    def _copy(self) -> "CountedRows":
        values = {name: counts.copy() for name, counts in self.values.items()}
        return replace(self, times=self.times.copy(), values=values)

    def _parts_of(self, decoded: Decoded, day: date) -> Iterator["_Part"]:
        for segment in self.segments:
            if segment.day == day:
                yield from _parts(decoded, segment)
        for batch in self.batches:
            if batch.day == day:
                rows = partial(decoded.batch_rows, batch)
                yield _Part(batch.min_created_at, batch.max_created_at, rows)

    def _include(self, rows: pa.Table, day: date) -> None:
        """Count those of `rows`, all of one day, that are of the query."""
        query = self.query
        if query.until is not None and utc_day(query.until) == day:
            newest = pc.max(rows["created_at"]).as_py()
            self.newest = max(self.newest or newest, newest)
        if query.conditions or not query.covers(day):
            rows = rows.filter(mask(query, rows))
        if query.since is not None and utc_day(query.since) == day:
            self._record_oldest(rows)
        self._tally(rows, day, 1)

    def _record_oldest(self, rows: pa.Table) -> None:
        if rows.num_rows:
            oldest = pc.min(rows["created_at"]).as_py()
            self.oldest = min(self.oldest or oldest, oldest)

    def _tally(self, rows: pa.Table, day: date, sign: int) -> None:
        start = midnight(day)
        for decision, count in _counted(rows["decision"]):
            add_to(self.times, (start, decision or ""), sign * count)
        for name, counts in self.values.items():
            for value, count in _counted(rows[name]):
                if value:
                    add_to(counts, value, sign * count)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows between the instants `first` and `last`."""

    first: datetime
    last: datetime
    rows: Callable[[], pa.Table]


def _parts(decoded: Decoded, segment: Segment) -> Iterator[_Part]:
    for group in decoded.row_groups(segment):
        rows = partial(decoded.rows, segment, group.index)
        yield _Part(group.min_created_at, group.max_created_at, rows)


def _counted(column: pa.ChunkedArray) -> Iterator[tuple[str | None, int]]:
    values, counts = pc.value_counts(column).flatten()
    return zip(values.to_pylist(), counts.to_pylist(), strict=True)
