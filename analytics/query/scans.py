"""The ways to the rows of a query, and to their counts. Each covers one part of a snapshot.

Which of them run is decided by `analytics.query.planner`; all of them give the same rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.results import SEGMENT_ID, ResultCache
from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.filters import Order, Query, where
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query import aggregates
from analytics.query.engine import Cancellation, Engine
from analytics.query.row_mask import first_of, matches, taken
from analytics.query.sql import COLUMNS, Source, condition, ordering, source
from analytics.storage.journal_batches import JournalBatch, decode_batches
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot
from analytics.storage.verified_files import no_wait

_MICROSECOND: Final = timedelta(microseconds=1)


class Dense(NamedTuple):
    """At most `limit` counts over time: those with so many `rows` within `steps` around them.

    Others may be there as well, or not.
    """

    limit: int
    rows: int = 1
    steps: int = 0


@dataclass(slots=True)
class Work:
    """What a scan has read, for `explain`: files from which rows came, and row groups decoded."""

    files: int = 0
    row_groups: int = 0
    cached_segments: int = 0


@dataclass(frozen=True, slots=True)
class Resources:
    """What scans read with. Setting `cancellation` ends the scan that runs."""

    engine: Engine
    segments: SegmentStore
    row_groups: Decoded | None = None
    results: ResultCache | None = None
    cancellation: Cancellation | None = None

    def local(self, segments: Iterable[Segment]) -> AbstractContextManager[None]:
        """See `SegmentStore.local`. The cancellation ends it as well."""
        stop = self.cancellation
        return self.segments.local(segments, no_wait if stop is None else lambda _: stop.check())

    def journal(self, batches: Sequence[JournalBatch]) -> pa.Table:
        """The rows of `batches`, in no order. Raises StoreFault."""
        return (
            decode_batches(batches) if self.row_groups is None else self.row_groups.journal(batches)
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Counts by value that the catalog's entries and the indexes of `segments` add up to.

    By `hours` too, if so asked.
    """

    segments: tuple[Segment, ...]
    counts: Mapping[str, int]
    hours: Mapping[tuple[datetime, str], int] | None = None


@dataclass(frozen=True, slots=True)
class CachedRowsScan:
    """All rows of `part` that meet the query's conditions, few enough to be kept.

    Segments that were not searched with these conditions before are searched by DuckDB, once. An
    `estimate` is at most how many rows of the query there may be; None if unknown.
    """

    name: ClassVar[str] = "cached rows"
    part: Snapshot
    query: Query
    estimate: int | None
    after: Position | None = None

    def rows(self, resources: Resources, work: Work | None = None) -> pa.Table:
        """The rows of the query in `part`, in no order; AUDIT_SCHEMA. Raises StoreFault."""
        held = self._held(resources, work or Work())
        if self.part.batches:
            held = pa.concat_tables([held, resources.journal(self.part.batches)])
        return taken(held, matches(self.query, held, self.part.watermark, self.after))

    def first(self, resources: Resources, limit: int, work: Work) -> pa.Table:
        """At most `limit` rows of the query within its part, in order; AUDIT_SCHEMA."""
        rows = self.rows(resources, work)
        return rows.take(first_of(rows, limit, self.query.order))

    def by_seq(self, resources: Resources, first: int, limit: int) -> pa.Table:
        """The rows of the query from seq `first` on, by seq, at most `limit`; AUDIT_SCHEMA."""
        rows = self.rows(resources)
        newer = rows.filter(pc.greater_equal(rows["seq"], pa.scalar(first, pa.int64())))
        return newer.sort_by("seq").slice(0, limit)

    def count(self, resources: Resources) -> int:
        """How many rows the query has in `part`."""
        return int(self.rows(resources).num_rows)

    def over_time(
        self,
        resources: Resources,
        step: timedelta,
        column: str | None = "decision",
        dense: Dense | None = None,
    ) -> pa.Table:
        """The rows of the query by `step` of time and `column`."""
        return aggregates.over_time(self.rows(resources), step, column)

    def values(self, resources: Resources, column: str, limit: int | None) -> pa.Table:
        """The most frequent values of `column`, see `aggregates.by_value`."""
        return aggregates.by_value(self.rows(resources), column, limit)

    def values_of(self, resources: Resources, columns: Sequence[str]) -> dict[str, pa.Table]:
        """All `values` of each of `columns`, of rows that are searched once."""
        rows = self.rows(resources)
        return {column: aggregates.by_value(rows, column) for column in columns}

    def groups(self, resources: Resources, columns: Sequence[str], limit: int) -> pa.Table:
        """The largest groups of equal values of `columns`, see `aggregates.by_group`."""
        return aggregates.by_group(self.rows(resources), columns, limit)

    def _held(self, resources: Resources, work: Work) -> pa.Table:
        if resources.results is None:
            return self._search(resources, self.part.segments, work).drop_columns([SEGMENT_ID.name])
        tenant_id, conditions = self.part.tenant_id, self.query.conditions
        known = resources.results.find(tenant_id, conditions)
        own = known.of(self.part.segments)
        work.cached_segments += len(own.segment_ids)
        missing = [s for s in self.part.segments if s.segment_id not in own.segment_ids]
        if not missing:
            return own.without_ids()
        rows = self._search(resources, missing, work)
        resources.results.add(tenant_id, conditions, (s.segment_id for s in missing), rows)
        return pa.concat_tables([own.without_ids(), rows.drop_columns([SEGMENT_ID.name])])

    def _search(self, resources: Resources, segments: Sequence[Segment], work: Work) -> pa.Table:
        """The rows of `segments` that meet the conditions, whenever they were; with SEGMENT_ID."""
        schema = AUDIT_SCHEMA.append(SEGMENT_ID)
        if not segments:
            return schema.empty_table()
        work.files += len(segments)
        root = resources.segments.root
        rows = source(root, segments, files=True)
        is_wanted, bound = where(Query(conditions=self.query.conditions))
        # Around the whole statement: DuckDB opens the files while it runs.
        with resources.local(segments):
            found = resources.engine.select(
                f"SELECT {COLUMNS}, filename FROM ({rows.sql}) WHERE {is_wanted}",
                bound | rows.bound,
                rows.tables,
                resources.cancellation,
            )
        # With a type: to guess one, Arrow imports dateutil first, for 5 ms.
        files = pa.array([str(segment.path(root)) for segment in segments], pa.string())
        ids = pa.array([segment.segment_id for segment in segments], pa.string())
        held_by = ids.take(pc.index_in(found["filename"], value_set=files))
        named = found.drop_columns(["filename"]).append_column(SEGMENT_ID, held_by)
        return named.cast(schema)


@dataclass(frozen=True, slots=True)
class DuckDBScan:
    """The rows of `part`, files and journal, read by DuckDB."""

    name: ClassVar[str] = "DuckDB scan"
    part: Snapshot
    query: Query
    estimate: int | None
    after: Position | None = None

    def first(self, resources: Resources, limit: int, work: Work) -> pa.Table:
        """As `CachedRowsScan.first`."""
        part = in_order(self.part, self.query.order)
        days = part.days(self.query.order)
        is_wanted, bound = condition(self.query, part.watermark, self.after, days)
        is_wanted += f" ORDER BY {ordering(self.query)} LIMIT {limit:d}"
        work.files += len(part.segments)
        return conform(self._select(resources, COLUMNS, is_wanted, bound))

    def by_seq(self, resources: Resources, first: int, limit: int) -> pa.Table:
        """The rows of the query from seq `first` on, by seq, at most `limit`; AUDIT_SCHEMA."""
        behind = f" AND seq >= $first ORDER BY seq LIMIT {limit:d}"
        return conform(self.ask(resources, COLUMNS, behind, first=first))

    def some(self, resources: Resources, first: int, limit: int) -> pa.Table:
        """As `by_seq`, but any of them, in no order."""
        behind = f" AND seq >= $first LIMIT {limit:d}"
        return conform(self.ask(resources, COLUMNS, behind, first=first))

    def stream(self, resources: Resources) -> Iterator[pa.Table]:
        """The rows of the query in its order, STREAM_BATCH_ROWS at a time; AUDIT_SCHEMA."""
        is_wanted, bound = condition(self.query, self.part.watermark)
        rows = self._source(resources)
        # Until the last table is taken: DuckDB opens files as the stream reaches them.
        with resources.local(self.part.segments):
            for table in resources.engine.stream(
                f"SELECT {COLUMNS} FROM ({rows.sql}) WHERE {is_wanted}"
                f" ORDER BY {ordering(self.query)}",
                bound | rows.bound,
                rows.tables,
                resources.cancellation,
            ):
                yield conform(table)

    def count(self, resources: Resources) -> int:
        """How many rows the query has in `part`."""
        return int(self.ask(resources, "count(*) AS rows", "")["rows"][0].as_py())

    def over_time(
        self,
        resources: Resources,
        step: timedelta,
        column: str | None = "decision",
        dense: Dense | None = None,
    ) -> pa.Table:
        """The rows of the query by `step` of time and `column`."""
        us = "epoch_us(created_at)"
        named = "''" if column is None else f"coalesce({column}, '')"
        behind = " GROUP BY step, value"
        if dense is not None and dense.rows > 1:
            behind += (
                " QUALIFY sum(rows) OVER (PARTITION BY value ORDER BY step RANGE BETWEEN"
                f" {dense.steps:d} PRECEDING AND {dense.steps:d} FOLLOWING) >= {dense.rows:d}"
            )
        return self.ask(
            resources,
            # The remainder of an instant before 1970 is negative.
            f"({us} - ({us} % $step + $step) % $step) // $step AS step, {named} AS value,"
            " count(*) AS rows",
            behind + ("" if dense is None else f" LIMIT {dense.limit:d}"),
            step=step // _MICROSECOND,
        )

    def values(self, resources: Resources, column: str, limit: int | None) -> pa.Table:
        """The most frequent values of `column`, see `aggregates.by_value`."""
        return self.ask(
            resources,
            f"{column} AS value, count(*) AS rows",
            f" AND {column} <> '' GROUP BY {column} ORDER BY rows DESC, value"
            + ("" if limit is None else f" LIMIT {limit:d}"),
        )

    def values_of(self, resources: Resources, columns: Sequence[str]) -> dict[str, pa.Table]:
        """All `values` of each of `columns`, of files that are read once."""
        names = ", ".join(columns)
        sets = ", ".join(f"({column})" for column in columns)
        counted = self.ask(
            resources,
            f"grouping_id({names}) AS others, {names}, count(*) AS rows",
            f" GROUP BY GROUPING SETS ({sets})",
        )
        return {column: aggregates.of_grouping(counted, columns, column) for column in columns}

    def groups(self, resources: Resources, columns: Sequence[str], limit: int) -> pa.Table:
        """The largest groups of equal values of `columns`, see `aggregates.by_group`."""
        names = ", ".join(columns)
        counted = self.ask(
            resources,
            f"{names}, count(*) AS rows, count(*) FILTER (decision = 'BLOCKED') AS blocked,"
            " min(created_at) AS first, max(created_at) AS last",
            f" GROUP BY {names} ORDER BY rows DESC, {names} LIMIT {limit:d}",
        )
        return counted.cast(aggregates.group_schema(columns))

    def ask(
        self,
        resources: Resources,
        columns: str,
        behind: str,
        tables: Mapping[str, pa.Table] = MappingProxyType({}),
        **bound: object,
    ) -> pa.Table:
        """`columns` (in SQL) of the rows of the query; `behind` follows its condition."""
        is_wanted, values = condition(self.query, self.part.watermark)
        return self._select(resources, columns, is_wanted + behind, values | bound, tables)

    def _select(
        self,
        resources: Resources,
        columns: str,
        is_wanted: str,
        bound: dict[str, Any],
        tables: Mapping[str, pa.Table] = MappingProxyType({}),
    ) -> pa.Table:
        rows = self._source(resources)
        with resources.local(self.part.segments):
            return resources.engine.select(
                f"SELECT {columns} FROM ({rows.sql}) WHERE {is_wanted}",
                bound | rows.bound,
                {**rows.tables, **tables},
                resources.cancellation,
            )

    def _source(self, resources: Resources) -> Source:
        journal = resources.journal(self.part.batches) if self.part.batches else None
        return source(resources.segments.root, self.part.segments, journal)


CountScan = Answer | CachedRowsScan | DuckDBScan
"""A way to counts of a query."""


def in_order(part: Snapshot, order: Order) -> Snapshot:
    """`part` with its segments as DuckDB should read them: it can then skip what comes last."""
    if order is Order.NEWEST_FIRST:
        ordered = sorted(part.segments, key=lambda segment: segment.max_created_at, reverse=True)
    else:
        ordered = sorted(part.segments, key=lambda segment: segment.min_created_at)
    return part.with_segments(ordered)


def conform(rows: pa.Table) -> pa.Table:
    """`rows` with AUDIT_SCHEMA's own types: DuckDB answers with its name for UTC."""
    return rows.cast(AUDIT_SCHEMA)
