"""Finding rows: pages, counts and streams over one snapshot of one tenant.

Days are walked from the end the caller wants first, in widening windows, until the page
is full: what is asked for most often lies in the newest day.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.results import FOUND_SCHEMA, SEGMENT_ID, found_rows
from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.filters import Condition, Order, Query, where
from analytics.model.instants import utc_day
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query import aggregates
from analytics.query.day_windows import hopeful_windows, windows
from analytics.query.engine import Cancellation, Engine
from analytics.query.newest_scan import GROUPS_MAX, READS_MAX, NewestRows
from analytics.query.ordered_scan import are_disjoint, straight
from analytics.query.row_mask import first_of, matches, taken
from analytics.query.sql import COLUMNS, Source, condition, ordering, source
from analytics.statistics.cardinality import Hoped, Hopes
from analytics.statistics.value_index import ValueIndex
from analytics.statistics.zone_maps import plan
from analytics.storage.journal_batches import JournalBatch, decode_batches
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

STRAIGHT_FROM: Final = 0.4
"""The part of a day's rows from which reading all of them is quicker than to let DuckDB skip the
others. Of a query with conditions the day before tells."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Reader:
    """Answers queries over snapshots whose segments lie below `root`. All raise StoreFault.

    With `decoded`, pages of newest rows take the short path and DuckDB is asked for the rest.
    With `values`, segments are not opened for what they are known not to hold.
    Setting `stop` ends what DuckDB runs for this reader; it then raises QueryStopped.
    """

    engine: Engine
    root: Path
    decoded: Decoded | None = None
    stop: Cancellation | None = None
    values: ValueIndex | None = None

    def page(
        self, snapshot: Snapshot, query: Query, limit: int, after: Position | None = None
    ) -> pa.Table:
        """At most `limit` rows of `query` in its order, those behind `after`; AUDIT_SCHEMA."""
        planned = plan(snapshot, query, after)
        hopes = Hopes(self.values, query)
        if (
            self.decoded is None
            or query.order is not Order.NEWEST_FIRST
            or hopes.are_rare(planned.segments, limit, GROUPS_MAX, READS_MAX)
        ):
            return self._page(planned, query, limit, after, hopes)
        mark = snapshot.watermark if after is None else min(snapshot.watermark, after.watermark)
        newest = NewestRows(self.decoded, query, mark, after, limit, hopes)
        newest.walk(planned.segments, planned.batches)
        if newest.is_complete:
            return newest.rows
        hopes.learn_more(planned.segments)
        if newest.rows.num_rows:
            last = newest.rows.slice(newest.rows.num_rows - 1).to_pylist()[0]
            after = Position(mark, last["created_at"], last["seq"])
            planned = plan(planned, query, after)
        rest = self._page(planned, query, newest.missing, after, hopes, newest.density)
        return pa.concat_tables([newest.rows, rest])

    def _page(
        self,
        planned: Snapshot,
        query: Query,
        limit: int,
        after: Position | None,
        hopes: Hopes,
        density: float | None = None,
    ) -> pa.Table:
        """See `page`; DuckDB's answer, about as many days at a time as fill it."""
        hopes.learn_more(planned.segments)
        promising = hopes.promising(planned.segments)
        planned = replace(planned, segments=_in_order(promising, query.order))
        pieces = [AUDIT_SCHEMA.empty_table()]
        missing = limit
        for run in _runs(planned, query, limit, after, hopes.by_day(promising, density)):
            rows = self._first(planned.of_days(run), query, missing, after, hopes)
            pieces.append(rows)
            missing -= rows.num_rows
            if missing == 0:
                break
        return pa.concat_tables(pieces)

    def _first(
        self, planned: Snapshot, query: Query, limit: int, after: Position | None, hopes: Hopes
    ) -> pa.Table:
        """The rows of a page of `planned`, all of which is looked through."""
        few = self._few(planned, hopes)
        if few is not None:
            places = matches(query, few, planned.watermark, after)
            return few.take(first_of(few, places, limit, query.order))
        is_wanted, bound = condition(query, planned.watermark, after, planned.days(query.order))
        is_wanted += f" ORDER BY {ordering(query)} LIMIT {limit:d}"
        return _conform(self._select(planned, COLUMNS, is_wanted, bound))

    def count(self, snapshot: Snapshot, query: Query) -> int:
        """How many rows `query` matches."""
        planned, few = self._plan(snapshot, query)
        if few is not None:
            return int(few.num_rows)
        counted = self._ask(planned, query, "count(*) AS rows")
        rows: int = counted["rows"][0].as_py()
        return rows

    def stream(self, snapshot: Snapshot, query: Query) -> Iterator[pa.Table]:
        """Every row of `query` in its order, a bounded table at a time.

        AUDIT_SCHEMA, or ENCODED_SCHEMA: what need not be ordered comes as it lies in its files.
        """
        planned = self._promising(snapshot, query, Hopes(self.values, query))
        density = 1.0 if not query.conditions else 0.0
        for day in planned.days(query.order):
            held = planned.of_days([day])
            if density >= STRAIGHT_FROM and not held.batches and are_disjoint(held.segments):
                tables = straight(self.root, held.segments, query, held.watermark, self.stop)
            else:
                tables = self._ordered(held, query)
            found = 0
            for rows in tables:
                found += rows.num_rows
                yield rows
            if query.conditions and held.segments:
                density = found / sum(segment.rows for segment in held.segments)

    def _ordered(self, planned: Snapshot, query: Query) -> Iterator[pa.Table]:
        """See `stream`; all rows of `planned`, put in order by DuckDB."""
        is_wanted, bound = condition(query, planned.watermark)
        held = self._source(planned)
        for rows in self.engine.stream(
            f"SELECT {COLUMNS} FROM ({held.sql}) WHERE {is_wanted} ORDER BY {ordering(query)}",
            bound | held.bound,
            held.tables,
            self.stop,
        ):
            yield _conform(rows)

    def row(self, snapshot: Snapshot, seq: int, query: Query) -> pa.Table:
        """The row with this `seq` if `query` matches it, else no row; AUDIT_SCHEMA."""
        holders = replace(
            snapshot,
            segments=tuple(s for s in snapshot.segments if s.min_seq <= seq <= s.max_seq),
            batches=tuple(b for b in snapshot.batches if b.first_seq <= seq < b.first_seq + b.rows),
        )
        planned, few = self._plan(holders, query)
        if few is not None:
            return few.filter(pc.equal(few["seq"], seq))
        return _conform(self._ask(planned, query, COLUMNS, " AND seq = $seq", seq=seq))

    def accepted_after(self, snapshot: Snapshot, query: Query, seq: int, limit: int) -> pa.Table:
        """The rows of `query` with a higher `seq`, by `seq`, at most `limit`; AUDIT_SCHEMA.

        By `seq`, whatever the query's own order: who asks again with the last one misses nothing.
        """
        newer = replace(
            snapshot,
            segments=tuple(s for s in snapshot.segments if s.max_seq > seq),
            batches=tuple(b for b in snapshot.batches if b.first_seq + b.rows - 1 > seq),
        )
        planned, few = self._plan(newer, query)
        if few is not None:
            return few.filter(pc.greater(few["seq"], seq)).sort_by("seq").slice(0, limit)
        behind = f" AND seq > $seen ORDER BY seq LIMIT {limit:d}"
        return _conform(self._ask(planned, query, COLUMNS, behind, seen=seq))

    def count_values(
        self, snapshot: Snapshot, query: Query, column: str, limit: int | None = None
    ) -> pa.Table:
        """The values of `column` among the rows of `query`, each with its number of `rows`.

        The most frequent first, `limit` of them; of equals the one that sorts first by code
        points. Null and the empty string are no values.
        """
        planned, few = self._plan(snapshot, query)
        if few is not None:
            return aggregates.by_value(few, column, limit)
        return self._ask(
            planned,
            query,
            f"{column} AS value, count(*) AS rows",
            f" AND {column} <> '' GROUP BY {column} ORDER BY rows DESC, value"
            + ("" if limit is None else f" LIMIT {limit:d}"),
        )

    def count_over_time(
        self, snapshot: Snapshot, query: Query, step: timedelta
    ) -> list[tuple[datetime, str, int]]:
        """The rows of `query` by step of time (counted from 1970) and decision ("" for none)."""
        planned, few = self._plan(snapshot, query)
        if few is not None:
            return aggregates.over_time(few, step)
        us = "epoch_us(created_at)"
        counted = self._ask(
            planned,
            query,
            # The remainder of an instant before 1970 is negative.
            f"{us} - ({us} % $step + $step) % $step AS begins,"
            " coalesce(decision, '') AS named, count(*) AS rows",
            " GROUP BY ALL",
            step=step // _MICROSECOND,
        )
        return [
            (_EPOCH + line["begins"] * _MICROSECOND, line["named"], line["rows"])
            for line in counted.to_pylist()
        ]

    def _plan(self, snapshot: Snapshot, query: Query) -> tuple[Snapshot, pa.Table | None]:
        """What may hold a row of `query`; and all of its rows, if they are few."""
        hopes = Hopes(self.values, query)
        planned = self._promising(snapshot, query, hopes)
        few = self._few(planned, hopes)
        if few is None:
            return planned, None
        return planned, taken(few, matches(query, few, snapshot.watermark))

    def _promising(self, snapshot: Snapshot, query: Query, hopes: Hopes) -> Snapshot:
        """See `plan`; what values are known of rules out more."""
        planned = plan(snapshot, query)
        hopes.learn_more(planned.segments)
        return replace(planned, segments=hopes.promising(planned.segments))

    def _few(self, planned: Snapshot, hopes: Hopes) -> pa.Table | None:
        """Every row of `planned` that the query may want, and others, if no file has many."""
        found = AUDIT_SCHEMA.empty_table()
        if planned.segments:
            conditions = hopes.few(planned.segments)
            if conditions is None or self.values is None:
                return None
            found = found_rows(
                self.values.cache,
                planned.tenant_id,
                conditions,
                planned.segments,
                lambda segments: self._search(segments, conditions),
            )
        return pa.concat_tables([found, self._journal(planned.batches)])

    def _search(self, segments: Sequence[Segment], conditions: tuple[Condition, ...]) -> pa.Table:
        """See `found_rows`."""
        files = pa.array([str(segment.path(self.root)) for segment in segments])
        ids = pa.array([segment.segment_id for segment in segments])
        rows = source(self.root, segments, files=True)
        is_wanted, bound = where(Query(conditions=conditions))
        found = self.engine.select(
            f"SELECT {COLUMNS}, filename FROM ({rows.sql}) WHERE {is_wanted}",
            bound | rows.bound,
            rows.tables,
            self.stop,
        )
        held_by = ids.take(pc.index_in(found["filename"], value_set=files))
        return (
            found.drop_columns(["filename"]).append_column(SEGMENT_ID, held_by).cast(FOUND_SCHEMA)
        )

    def _ask(
        self, planned: Snapshot, query: Query, columns: str, behind: str = "", **bound: int
    ) -> pa.Table:
        """DuckDB's answer over the rows of `query`; `behind` follows the condition."""
        is_wanted, values = condition(query, planned.watermark)
        return self._select(planned, columns, is_wanted + behind, values | bound)

    def _select(
        self, planned: Snapshot, columns: str, is_wanted: str, bound: dict[str, Any]
    ) -> pa.Table:
        rows = self._source(planned)
        return self.engine.select(
            f"SELECT {columns} FROM ({rows.sql}) WHERE {is_wanted}",
            bound | rows.bound,
            rows.tables,
            self.stop,
        )

    def _source(self, planned: Snapshot) -> Source:
        journal = self._journal(planned.batches) if planned.batches else None
        return source(self.root, planned.segments, journal)

    def _journal(self, batches: Sequence[JournalBatch]) -> pa.Table:
        return decode_batches(batches) if self.decoded is None else self.decoded.journal(batches)


def _in_order(segments: Iterable[Segment], order: Order) -> tuple[Segment, ...]:
    """`segments` as DuckDB should read them: what comes first in the page lets it skip the rest."""
    if order is Order.NEWEST_FIRST:
        return tuple(sorted(segments, key=lambda one: one.max_created_at, reverse=True))
    return tuple(sorted(segments, key=lambda one: one.min_created_at))


def _runs(
    planned: Snapshot, query: Query, wanted: int, after: Position | None, hoped: Hoped | None
) -> Iterator[Sequence[date]]:
    """The days of `planned`, as many at a time as DuckDB should look through for `wanted` rows.

    The day of the position comes alone: it needs a condition under which DuckDB cannot skip.
    """
    days = planned.days(query.order)
    if after is not None and days[:1] == [utc_day(after.created_at)]:
        yield days[:1]
        days = days[1:]
    yield from windows(days) if hoped is None else hopeful_windows(days, hoped, wanted)


def _conform(rows: pa.Table) -> pa.Table:
    """`rows` with AUDIT_SCHEMA's own types: DuckDB answers with its name for UTC."""
    return rows.cast(AUDIT_SCHEMA)
