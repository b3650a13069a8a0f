"""The sum of whole segments, as their indexes tell it, moved on by what came and what went."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Final, TypeVar

from analytics.model.filters import Query
from analytics.model.instants import midnight
from analytics.query.aggregates import TOP_MAX
from analytics.statistics.top_values import (
    HeadSum,
    Lookups,
    SegmentHead,
    all_values,
    heads_of,
)
from analytics.statistics.value_index import ValueIndex, meets
from analytics.storage.segment_index import HEAD_COLUMNS
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

STEP_SEGMENTS: Final = 32
"""How many segments one step adds: some 50 ms at first."""

VALUES_MAX: Final = 50_000
"""A column of which heads name more values has no top."""

LOOKUPS_MAX: Final = 1_000
"""Lookups of a value in a segment for one top: they are kept with the sum."""

CUT_ROWS_MAX: Final = 2**18
"""So many rows of segments are counted one by one. There is no sum where it would be more."""

_HEAD_BYTES: Final = 4_096
_VALUE_BYTES: Final = 250

Top = list[tuple[str, int]]
DayCounts = dict[tuple[datetime, str], int]
"""Rows by the start of their day and by decision ("" for none)."""

_Key = TypeVar("_Key")


class SumLost(Exception):
    """What a segment had added cannot be read any more: the sum has to begin anew."""


class NotAtOnce(Exception):
    """It has to be read from files, or is too much for a moment."""


def add_to(counts: dict[_Key, int], key: _Key, rows: int) -> None:
    """Add `rows`, or subtract them if they are negative; what has none is not there."""
    total = counts.get(key, 0) + rows
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


@dataclass(slots=True)
class ClosedColumn:
    """The values of a column, and the rows of those that were looked up.

    `silent` are the heads, by segment id, of segments that have other values, too. In `unknown`
    are segments whose indexes do not have the column. `is_untold` if lookups do not tell the top.
    """

    heads: HeadSum = field(default_factory=HeadSum)
    silent: dict[str, list[SegmentHead]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    looked_up: dict[str, int] = field(default_factory=dict)
    own_top: Top | None = None
    is_untold: bool = False

    def copy(self, *, is_same: bool) -> "ClosedColumn":
        """To be moved on; what was looked up stays if all rows do."""
        known = (self.looked_up, self.own_top) if is_same else ({}, None)
        return ClosedColumn(self.heads.copy(), self.silent.copy(), self.unknown.copy(), *known)

    def add(self, index: ValueIndex, segment: Segment, query: Query, name: str) -> None:
        """Add the values of the segment."""
        heads = heads_of(index, segment, query, name)
        if heads is None:
            self.unknown.add(segment.segment_id)
            return
        for own in heads:
            self.heads.add(own.head)
        if any(own.head.others_max for own in heads):
            self.silent[segment.segment_id] = heads

    def remove(self, index: ValueIndex, segment: Segment, query: Query, name: str) -> None:
        """Subtract what `add` added. Raises SumLost."""
        if segment.segment_id in self.unknown:
            self.unknown.remove(segment.segment_id)
            return
        heads = self.silent.pop(segment.segment_id, None)
        if heads is None:  # its heads named all values, and any index has these
            heads = all_values(index, segment, query, name)
        if heads is None:
            raise SumLost
        for own in heads:
            self.heads.add(own.head, -1)

    def counts_all_of(self, segment: Segment) -> bool:
        """True if all values of the segment are among those counted."""
        name = segment.segment_id
        return name not in self.silent and name not in self.unknown

    def top(self, counted: Mapping[str, int], *, at_once: bool) -> Top | None:
        """The TOP_MAX most frequent values of its rows, and of those `counted` besides.

        None if they have to be counted. Raises NotAtOnce if they have to be looked up first.
        """
        if self.unknown or self.is_untold or len(self.heads.rows) > VALUES_MAX:
            return None
        lookups = Lookups([head for heads in self.silent.values() for head in heads], LOOKUPS_MAX)

        def exact(value: str) -> int | None:
            rows = self.looked_up.get(value)
            if rows is None and at_once:
                raise NotAtOnce
            if rows is None:
                rows = lookups.rows(value, self.heads.rows.get(value, 0))
            if rows is not None:
                self.looked_up[value] = rows
            return rows

        if self.own_top is None:
            if at_once:
                raise NotAtOnce
            own = self.heads.top(self.heads.rows, {}, TOP_MAX, exact)
            self.is_untold = own is None or self.heads.may_hide(own, TOP_MAX)
            if own is None or self.is_untold:
                return None
            self.looked_up |= dict(own)
            self.own_top = own
        if not counted:
            return self.own_top
        # A value that is neither in its own top nor counted stays behind all of that top.
        totals = {value: rows + counted.get(value, 0) for value, rows in self.own_top}
        least = min(totals.values()) if len(totals) == TOP_MAX else 0
        near = self.heads.that_may_have(least, counted)
        return self.heads.top({*totals, *near}, counted, TOP_MAX, exact)


@dataclass(slots=True)
class ClosedSum:
    """The rows of `segments`, all of which a query's bounds enclose.

    `live` are all segments of the snapshot that it is the sum of (None: not yet). Those between
    the bounds that are not in it are the `rest`: of days that a bound cuts, or `unreadable`.
    """

    segments: dict[str, Segment] = field(default_factory=dict)
    times: DayCounts = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    columns: dict[str, ClosedColumn] = field(
        default_factory=lambda: {name: ClosedColumn() for name in HEAD_COLUMNS}
    )
    live: tuple[Segment, ...] | None = None
    rest: tuple[Segment, ...] = ()
    unreadable: frozenset[str] = frozenset()
    max_seq: int = 0

    @property
    def is_given_up(self) -> bool:
        """True if too many rows would have to be counted besides."""
        return _are_too_many(self.rest)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        entries = len(self.segments) + len(self.times)
        entries += sum(2 * len(column.heads.rows) for column in self.columns.values())
        heads = sum(len(column.silent) for column in self.columns.values())
        return _VALUE_BYTES * entries + _HEAD_BYTES * heads

    def moved(self, index: ValueIndex, snapshot: Snapshot, query: Query) -> "ClosedSum":
        """Without the segments that went, and with those that came, STEP_SEGMENTS at most.

        Raises SumLost, StoreFault.
        """
        days = {segment.day for segment in snapshot.segments}
        whole = {day for day in days if query.covers(day)}
        cut_days = {day for day in days - whole if query.touches(day)}
        cut = tuple(segment for segment in snapshot.segments if segment.day in cut_days)
        if _are_too_many(cut):
            return ClosedSum(live=snapshot.segments, rest=cut)
        live = {
            segment.segment_id: segment for segment in snapshot.segments if segment.day in whole
        }
        # What could not be read is tried again once the segments are others.
        failed = self.unreadable if self.live is None else frozenset[str]()
        gone = [segment for name, segment in self.segments.items() if name not in live]
        known = self.segments.keys() | failed
        added = [segment for name, segment in live.items() if name not in known]
        merged = _merged_days(gone, added)
        new = self._copy(is_same=merged == {segment.day for segment in (*gone, *added)})
        exchanged = new._exchange(gone, added, merged)
        gone = [segment for segment in gone if segment.day not in exchanged]
        added = [segment for segment in added if segment.day not in exchanged]
        part = added[:STEP_SEGMENTS]
        index.fetch(part)
        for segment in gone:
            new._remove(index, segment, query)
        failed |= {segment.segment_id for segment in part if not new._add(index, segment, query)}
        new.unreadable = failed & live.keys()
        new.live = snapshot.segments if part == added else None
        new.rest = cut + tuple(live[name] for name in sorted(new.unreadable))
        new.max_seq = max((segment.max_seq for segment in snapshot.segments), default=0)
        return new

    def _exchange(
        self, gone: Sequence[Segment], added: Sequence[Segment], merged: Set[date]
    ) -> Set[date]:
        """Put those of `added` in the place of those that they are merged from; returns the days.

        Only where all values are counted: then the sum stays as it is, and nothing is read. The
        files of those that went may be removed by now.
        """
        exchanged = merged - {
            segment.day
            for segment in gone
            if not all(column.counts_all_of(segment) for column in self.columns.values())
        }
        for segment in gone:
            if segment.day in exchanged:
                del self.segments[segment.segment_id]
        self.segments |= {
            segment.segment_id: segment for segment in added if segment.day in exchanged
        }
        return exchanged

    def _copy(self, *, is_same: bool) -> "ClosedSum":
        columns = {name: column.copy(is_same=is_same) for name, column in self.columns.items()}
        return replace(
            self,
            segments=self.segments.copy(),
            times=self.times.copy(),
            events=self.events.copy(),
            columns=columns,
        )

    def _add(self, index: ValueIndex, segment: Segment, query: Query) -> bool:
        """Add the segment; False if its index cannot be read."""
        if not self._add_kinds(index, segment, query, 1):
            return False
        for name, column in self.columns.items():
            column.add(index, segment, query, name)
        self.segments[segment.segment_id] = segment
        return True

    def _remove(self, index: ValueIndex, segment: Segment, query: Query) -> None:
        if not self._add_kinds(index, segment, query, -1):
            raise SumLost
        for name, column in self.columns.items():
            column.remove(index, segment, query, name)
        del self.segments[segment.segment_id]

    def _add_kinds(self, index: ValueIndex, segment: Segment, query: Query, sign: int) -> bool:
        counts = index.count_all(segment)
        if counts is None:
            return False
        start = midnight(segment.day)
        for kind, rows in zip(counts.kinds, counts.rows, strict=True):
            if meets(kind, query.conditions):
                add_to(self.times, (start, kind.decision or ""), sign * rows)
                add_to(self.events, kind.event, sign * rows)
        return True


def _are_too_many(segments: Sequence[Segment]) -> bool:
    return sum(segment.rows for segment in segments) > CUT_ROWS_MAX


def _merged_days(gone: Sequence[Segment], added: Sequence[Segment]) -> Set[date]:
    """The days of which the segments that came are merged from those that went.

    Rows leave a day only all together, and those that come have higher seqs. So what has as many
    rows, between the same seqs, has the same ones.
    """
    came = _extents(added)
    return {day for day, extent in _extents(gone).items() if came.get(day) == extent}


def _extents(segments: Sequence[Segment]) -> dict[date, tuple[int, int, int]]:
    """By day, how many rows the segments have, and between which seqs."""
    days: defaultdict[date, list[Segment]] = defaultdict(list)
    for segment in segments:
        days[segment.day].append(segment)
    return {
        day: (
            sum(segment.rows for segment in held),
            min(segment.min_seq for segment in held),
            max(segment.max_seq for segment in held),
        )
        for day, held in days.items()
    }
