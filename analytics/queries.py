"""Finding rows: pages, counts and streams over one snapshot of one tenant.

A snapshot names every file and journal batch it covers, so what it holds never changes while it
is read. Days are walked from the end the caller wants first, in widening windows, until the page
is full: what is asked for most often lies in the newest day.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from analytics.batches import JournalBatch, decode_batches
from analytics.cursors import Position
from analytics.decoded import Decoded
from analytics.engine import Engine, Stop
from analytics.filters import Order, Query, where
from analytics.hopes import Hoped, Hopes
from analytics.instants import utc_day
from analytics.newest import GROUPS_MAX, NewestRows
from analytics.planning import batch_may_hold, may_hold
from analytics.schema import AUDIT_SCHEMA, JOURNAL_SCHEMA
from analytics.segments import Segment
from analytics.straight import lie_apart, straight
from analytics.values import ValueIndex
from analytics.windows import hopeful_windows, windows

SCANS_MAX: Final = 16
"""Scans of files in one statement. Each has its own seq base, as a constant, which is quickest; and
each takes memory and planning of its own, so the files of all further bases share one, in which
each row looks its base up. A tenant has as many bases as it has imported files."""

STRAIGHT_FROM: Final = 0.4
"""The part of a day's rows from which reading all of them is quicker than to let DuckDB skip the
others. Of a query with conditions the day before tells."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_COLUMNS: Final = ", ".join(AUDIT_SCHEMA.names)
_ALL_BUT_SEQ: Final = ", ".join(JOURNAL_SCHEMA.names)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of one tenant as of one read transaction.

    `watermark` is the highest `seq` given out by then, to any tenant.
    """

    tenant_id: str
    watermark: int
    segments: tuple[Segment, ...]
    batches: tuple[JournalBatch, ...]

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to read."""
        return not self.segments and not self.batches


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
    stop: Stop | None = None
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
            or hopes.are_rare(planned.segments, limit, GROUPS_MAX)
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
            source = self._source(planned, run)
            condition, bound = _condition(planned, query, after, run)
            rows = self.engine.select(
                f"SELECT {_COLUMNS} FROM ({source.sql}) WHERE {condition} "
                f"ORDER BY {_ordering(query)} LIMIT {missing:d}",
                bound | source.bound,
                source.tables,
                self.stop,
            )
            pieces.append(_conform(rows))
            missing -= rows.num_rows
            if missing == 0:
                break
        return pa.concat_tables(pieces)

    def count(self, snapshot: Snapshot, query: Query) -> int:
        """How many rows `query` matches."""
        planned = self._plan(snapshot, query)
        if planned.is_empty:
            return 0
        condition, bound = _condition(snapshot, query, None)
        source = self._source(planned)
        counted = self.engine.select(
            f"SELECT count(*) AS rows FROM ({source.sql}) WHERE {condition}",
            bound | source.bound,
            source.tables,
            self.stop,
        )
        return int(counted.column("rows")[0].as_py())

    def stream(self, snapshot: Snapshot, query: Query) -> Iterator[pa.Table]:
        """Every row of `query` in its order, a bounded table at a time.

        AUDIT_SCHEMA, or ENCODED_SCHEMA: what need not be ordered comes as it lies in its files.
        """
        planned = self._plan(snapshot, query)
        density = 1.0 if not query.conditions else 0.0
        for day in _days(planned, query.order):
            segments = [segment for segment in planned.segments if segment.day == day]
            is_journalled = any(batch.day == day for batch in planned.batches)
            if density >= STRAIGHT_FROM and not is_journalled and lie_apart(segments):
                tables = straight(self.root, segments, query, snapshot.watermark, self.stop)
            else:
                tables = self._ordered(planned, query, day)
            found = 0
            for rows in tables:
                found += rows.num_rows
                yield rows
            if query.conditions and segments:
                density = found / sum(segment.rows for segment in segments)

    def _ordered(self, planned: Snapshot, query: Query, day: date) -> Iterator[pa.Table]:
        """See `stream`; the rows of one day, put in order by DuckDB."""
        condition, bound = _condition(planned, query, None)
        source = self._source(planned, [day])
        for rows in self.engine.stream(
            f"SELECT {_COLUMNS} FROM ({source.sql}) WHERE {condition} ORDER BY {_ordering(query)}",
            bound | source.bound,
            source.tables,
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
        planned = self._plan(holders, query)
        if planned.is_empty:
            return AUDIT_SCHEMA.empty_table()
        condition, bound = _condition(holders, query, None)
        source = self._source(planned)
        return _conform(
            self.engine.select(
                f"SELECT {_COLUMNS} FROM ({source.sql}) WHERE {condition} AND seq = $seq",
                bound | source.bound | {"seq": seq},
                source.tables,
                self.stop,
            )
        )

    def accepted_after(self, snapshot: Snapshot, query: Query, seq: int, limit: int) -> pa.Table:
        """The rows of `query` with a higher `seq`, by `seq`, at most `limit`; AUDIT_SCHEMA.

        By `seq`, whatever the query's own order: who asks again with the last one misses nothing.
        """
        newer = replace(
            snapshot,
            segments=tuple(s for s in snapshot.segments if s.max_seq > seq),
            batches=tuple(b for b in snapshot.batches if b.first_seq + b.rows - 1 > seq),
        )
        planned = self._plan(newer, query)
        if planned.is_empty:
            return AUDIT_SCHEMA.empty_table()
        condition, bound = _condition(newer, query, None)
        source = self._source(planned)
        return _conform(
            self.engine.select(
                f"SELECT {_COLUMNS} FROM ({source.sql}) WHERE {condition} AND seq > $seen"
                f" ORDER BY seq LIMIT {limit:d}",
                bound | source.bound | {"seen": seq},
                source.tables,
                self.stop,
            )
        )

    def count_values(
        self, snapshot: Snapshot, query: Query, column: str, limit: int | None = None
    ) -> list[tuple[str, int]]:
        """The values of `column` among the rows of `query`, each with its number of rows.

        The most frequent first, `limit` of them; of equals the one that sorts first by code
        points. Null and the empty string are no values.
        """
        planned = self._plan(snapshot, query)
        if planned.is_empty:
            return []
        condition, bound = _condition(snapshot, query, None)
        source = self._source(planned)
        counted = self.engine.select(
            f"SELECT {column} AS value, count(*) AS rows FROM ({source.sql})"
            f" WHERE {condition} AND {column} <> '' GROUP BY {column}"
            f" ORDER BY rows DESC, value" + ("" if limit is None else f" LIMIT {limit:d}"),
            bound | source.bound,
            source.tables,
            self.stop,
        )
        return [(line["value"], line["rows"]) for line in counted.to_pylist()]

    def count_over_time(
        self, snapshot: Snapshot, query: Query, step: timedelta
    ) -> list[tuple[datetime, str, int]]:
        """The rows of `query` by step of time (counted from 1970) and decision ("" for none)."""
        planned = self._plan(snapshot, query)
        if planned.is_empty:
            return []
        condition, bound = _condition(snapshot, query, None)
        source = self._source(planned)
        counted = self.engine.select(
            # The remainder of an instant before 1970 is negative.
            "SELECT us - (us % $step + $step) % $step AS begins, decision, count(*) AS rows FROM"
            " (SELECT epoch_us(created_at) AS us, coalesce(decision, '') AS decision"
            f" FROM ({source.sql}) WHERE {condition}) GROUP BY ALL",
            bound | source.bound | {"step": step // _MICROSECOND},
            source.tables,
            self.stop,
        )
        return [
            (_EPOCH + line["begins"] * _MICROSECOND, line["decision"], line["rows"])
            for line in counted.to_pylist()
        ]

    def _plan(self, snapshot: Snapshot, query: Query) -> Snapshot:
        """See `plan`; what values are known of rules out more."""
        planned = plan(snapshot, query)
        hopes = Hopes(self.values, query)
        hopes.learn_more(planned.segments)
        return replace(planned, segments=hopes.promising(planned.segments))

    def _source(self, snapshot: Snapshot, days: Iterable[date] | None = None) -> "_Source":
        """The rows of `days` (None: of all) as an SQL table: files and journal batches."""
        wanted = None if days is None else frozenset(days)
        segments = [s for s in snapshot.segments if wanted is None or s.day in wanted]
        batches = [b for b in snapshot.batches if wanted is None or b.day in wanted]
        parts: list[str] = []
        bound: dict[str, Any] = {}
        tables: dict[str, pa.Table] = {}
        own, others = _by_seq_base(segments)
        for number, (seq_base, held) in enumerate(own):
            seq = "seq"
            if seq_base:
                seq = f"seq + $seq_base{number} AS seq"
                bound[f"seq_base{number}"] = seq_base
            parts.append(
                f"SELECT {seq}, {_ALL_BUT_SEQ}"
                f" FROM read_parquet($files{number}, hive_partitioning = false)"
            )
            bound[f"files{number}"] = [str(segment.path(self.root)) for segment in held]
        if others:
            names = [str(segment.path(self.root)) for segment in others]
            bases = pa.array([segment.seq_base for segment in others], pa.int64())
            tables["bases"] = pa.table({"filename": names, "seq_base": bases})
            parts.append(
                f"SELECT seq + seq_base AS seq, {_ALL_BUT_SEQ}"
                " FROM read_parquet($others, hive_partitioning = false, filename = true)"
                " JOIN bases USING (filename)"
            )
            bound["others"] = names
        if batches:
            tables["journal"] = self._journal(batches)
            parts.append(f"SELECT {_COLUMNS} FROM journal")
        return _Source(" UNION ALL ".join(parts), bound, tables)

    def _journal(self, batches: Sequence[JournalBatch]) -> pa.Table:
        return decode_batches(batches) if self.decoded is None else self.decoded.journal(batches)


@dataclass(frozen=True, slots=True)
class _Source:
    """A table expression, the values it binds and the Arrow tables it names."""

    sql: str
    bound: dict[str, Any]
    tables: dict[str, pa.Table]


def _by_seq_base(
    segments: Sequence[Segment],
) -> tuple[list[tuple[int, list[Segment]]], list[Segment]]:
    """`segments` by their seq base: those of the SCANS_MAX bases with most rows, and the others."""
    bases: dict[int, list[Segment]] = {}
    for segment in segments:
        bases.setdefault(segment.seq_base, []).append(segment)
    ordered = sorted(bases.items(), key=lambda base: sum(s.rows for s in base[1]), reverse=True)
    return ordered[:SCANS_MAX], [s for _, held in ordered[SCANS_MAX:] for s in held]


def plan(snapshot: Snapshot, query: Query, after: Position | None = None) -> Snapshot:
    """`snapshot` without what cannot hold a row of `query` behind `after`."""
    mark = snapshot.watermark
    return replace(
        snapshot,
        segments=tuple(s for s in snapshot.segments if may_hold(s, query, mark, after)),
        batches=tuple(b for b in snapshot.batches if batch_may_hold(b, query, mark, after)),
    )


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
    days = _days(planned, query.order)
    if after is not None and days[:1] == [utc_day(after.created_at)]:
        yield days[:1]
        days = days[1:]
    yield from windows(days) if hoped is None else hopeful_windows(days, hoped, wanted)


def _days(snapshot: Snapshot, order: Order) -> list[date]:
    """The days of the snapshot, in the order of its rows."""
    held = {s.day for s in snapshot.segments} | {b.day for b in snapshot.batches}
    return sorted(held, reverse=order is Order.NEWEST_FIRST)


def _condition(
    snapshot: Snapshot, query: Query, after: Position | None, days: Sequence[date] | None = None
) -> tuple[str, dict[str, Any]]:
    """Which rows of the snapshot's files belong into the answer; `days` (None: any) are theirs."""
    condition, bound = where(query)
    condition += " AND seq <= $watermark"
    bound["watermark"] = snapshot.watermark
    if after is not None:
        bound["watermark"] = min(after.watermark, snapshot.watermark)
    if after is not None and (days is None or utc_day(after.created_at) in days):
        bound["at"], bound["after_seq"] = after.created_at, after.seq
        comes = "<" if query.order is Order.NEWEST_FIRST else ">"
        # The first half repeats what the second implies, in the form that skips row groups.
        condition += (
            f" AND created_at {comes}= $at::TIMESTAMPTZ AND (created_at {comes} $at::TIMESTAMPTZ"
            f" OR seq {comes} $after_seq)"
        )
    return condition, bound


def _ordering(query: Query) -> str:
    return f"created_at {query.order.value}, seq {query.order.value}"


def _conform(rows: pa.Table) -> pa.Table:
    """`rows` with AUDIT_SCHEMA's own types: DuckDB answers with its name for UTC."""
    return rows.cast(AUDIT_SCHEMA)
