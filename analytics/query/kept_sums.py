"""Sums for summaries, kept and moved on by difference.

From one summary to the next almost nothing changes. So the rows by day and decision, by event and
by the values of some columns are added up once for each tenant, window of days and conditions; then
what came is added, and what went is subtracted. A sum has two halves: whole segments, which their
indexes tell (`closed_sums`), and rows that have to be counted (`counted_rows`).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any, Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.cache.row_groups import Decoded
from analytics.model.filters import Query
from analytics.model.instants import utc_day
from analytics.query.aggregates import TOP_MAX, top_of
from analytics.query.closed_sums import ClosedSum, DayCounts, NotAtOnce, SumLost, Top, add_to
from analytics.query.counted_rows import CountedRows
from analytics.statistics.value_index import ValueIndex
from analytics.storage.snapshot import Snapshot

QUICK_ROWS: Final = 2_000
QUICK_BATCHES: Final = 32
QUICK_VALUES: Final = 20_000
"""How far behind a sum may be, and how many values it may have counted, to be moved on at once."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What a query's rows add up to: by day and decision, and the most frequent values by column.

    Those are None if they have to be counted. What is made of the sum may be kept in `made`.
    """

    times: DayCounts
    tops: Mapping[str, Top | None]
    made: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _State:
    closed: ClosedSum
    counted: CountedRows | None = None
    answer: Sum | None = None


class KeptSums:
    """The sums of queries with conditions on decisions alone. Safe to use from several threads.

    Nothing that is kept changes, but for values that are looked up: a sum that was moved on takes
    the place of the former one.
    """

    def __init__(self, index: ValueIndex, decoded: Decoded, bytes_max: int) -> None:
        self._index = index
        self._decoded = decoded
        self._kept = ByteCache(bytes_max)

    def find(self, snapshot: Snapshot, query: Query) -> Sum | None:
        """The sum, if it takes no file and a moment at most. Raises StoreFault."""
        state = self._state(snapshot, query)
        closed, counted = state.closed, state.counted
        if closed.live is not snapshot.segments or counted is None or _is_ahead(state, snapshot):
            return None
        if not counted.is_behind(snapshot) or not counted.has_all_of(query):
            return None
        if state.answer is not None and counted.batches is snapshot.batches:
            return state.answer
        added = snapshot.batches[len(counted.batches) :]
        if len(added) > QUICK_BATCHES or sum(batch.rows for batch in added) > QUICK_ROWS:
            return None
        if counted.distinct > QUICK_VALUES:
            return None
        counted = counted.with_batches(self._decoded, snapshot)
        if not counted.has_all_of(query):
            return None
        try:
            answer = _sum_of(closed, counted, at_once=True)
        except NotAtOnce:
            return None
        self._keep(snapshot, query, _State(closed, counted, answer))
        return answer

    def step(self, snapshot: Snapshot, query: Query) -> bool:
        """Bring the sum nearer to the snapshot; True if there is no more to do.

        Raises StoreFault.
        """
        state = self._state(snapshot, query)
        if not may_be_kept(query):
            return True
        closed = state.closed
        if closed.live is not snapshot.segments:
            try:
                closed = closed.moved(self._index, snapshot, query)
            except SumLost:
                closed = ClosedSum().moved(self._index, snapshot, query)
            self._keep(snapshot, query, _State(closed, state.counted))
        if closed.live is None:
            return False
        if closed.is_given_up:
            return True
        counted = self._counted(state.counted, snapshot, query, closed)
        is_all = counted.batches is snapshot.batches
        answer = _sum_of(closed, counted, at_once=False) if is_all else None
        self._keep(snapshot, query, _State(closed, counted, answer))
        return is_all

    def _counted(
        self, old: CountedRows | None, snapshot: Snapshot, query: Query, closed: ClosedSum
    ) -> CountedRows:
        """One step from `old`, if it leads to the rows of `query`, or from the segments alone."""
        if old is not None and old.segments == closed.rest and old.is_behind(snapshot):
            new = old.with_batches(self._decoded, snapshot)
            since = old.query.since
            if since is not None and query.since is not None and since < query.since:
                new = new if new.has_all_of(query) else new.from_later(self._decoded, query.since)
            if new.has_all_of(query):
                return new
        first = CountedRows.of(self._decoded, query, closed.rest)
        return first.with_batches(self._decoded, snapshot)

    def _state(self, snapshot: Snapshot, query: Query) -> _State:
        state: _State | None = self._kept.find(key_of(snapshot, query))[1]
        return state or _State(ClosedSum())

    def _keep(self, snapshot: Snapshot, query: Query, state: _State) -> None:
        size = ENTRY_BYTES + state.closed.size + (state.counted.size if state.counted else 0)
        self._kept.keep(key_of(snapshot, query), state, size)


def _is_ahead(state: _State, snapshot: Snapshot) -> bool:
    """True if there are rows beyond the snapshot's watermark: a sum has all."""
    seqs = [state.closed.max_seq, *(batch.max_seq for batch in snapshot.batches[-1:])]
    return max(seqs) > snapshot.watermark


def may_be_kept(query: Query) -> bool:
    """True if its conditions are on decisions alone."""
    return all(condition.column == "decision" for condition in query.conditions)


def key_of(snapshot: Snapshot, query: Query) -> Hashable:
    """The same for all queries that cover the same days and cut the same ones."""
    return snapshot.tenant_id, query.conditions, _edge(query.since), _edge(query.until)


def _edge(bound: datetime | None) -> Hashable:
    return bound and (utc_day(bound), bound.timetz().replace(tzinfo=None) == time.min)


def _sum_of(closed: ClosedSum, counted: CountedRows, *, at_once: bool) -> Sum:
    """Both halves together. Raises NotAtOnce."""
    times, events = closed.times.copy(), closed.events.copy()
    for start_and_decision, rows in counted.times.items():
        add_to(times, start_and_decision, rows)
    for event, rows in counted.values["event"].items():
        add_to(events, event, rows)
    tops: dict[str, Top | None] = {"event": top_of(events, TOP_MAX)}
    for name, column in closed.columns.items():
        tops[name] = column.top(counted.values[name], at_once=at_once)
    return Sum(times, tops)
