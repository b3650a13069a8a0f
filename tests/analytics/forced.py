"""Planners that choose one kind of scan wherever it can answer: all must give the same rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from analytics.cache.row_groups import journal_runs
from analytics.model.cursors import Position
from analytics.model.filters import Order, Query
from analytics.query.buckets import Bucket
from analytics.query.newest_scan import RowBlock, RowGroupLookup, StoredGroup
from analytics.query.ordered_scan import OrderedScan, are_disjoint
from analytics.query.planner import Planner, RowScan
from analytics.query.reader import Reader
from analytics.query.scans import CachedRowsScan, CountScan, DuckDBScan
from analytics.statistics.zone_maps import prune
from analytics.storage.segment_index import Head
from analytics.storage.snapshot import Snapshot

Choose = Callable[[Snapshot, Query, Position | None], RowScan]


@dataclass(frozen=True)
class Forced(Planner):
    """Every page, count and stream is one scan that `choose` makes, but for what it cannot do."""

    choose: Choose | None = None

    def page(
        self, snapshot: Snapshot, query: Query, limit: int, after: Position | None
    ) -> Iterator[RowScan]:
        assert self.choose is not None
        if not snapshot.is_empty:
            yield self.choose(snapshot, query, after)

    def rows(self, snapshot: Snapshot, query: Query) -> CachedRowsScan | DuckDBScan:
        scan = next(self.page(snapshot, query, 1, None), None)
        if isinstance(scan, CachedRowsScan | DuckDBScan):
            return scan
        return CachedRowsScan(snapshot, query, None)

    def stream(self, snapshot: Snapshot, query: Query) -> Iterator[OrderedScan | DuckDBScan]:
        part = prune(snapshot, query)
        for day in part.days(query.order):
            own = part.of_days([day])
            if self.choose is ordered and not own.batches and are_disjoint(own.segments):
                yield OrderedScan(own, query)
            else:
                yield DuckDBScan(own, query, None)

    def count(self, snapshot: Snapshot, query: Query) -> list[CountScan]:
        return [] if snapshot.is_empty else [self.rows(snapshot, query)]

    def count_values(self, snapshot: Snapshot, query: Query, column: str) -> list[CountScan]:
        return self.count(snapshot, query)

    def over_time(self, snapshot: Snapshot, query: Query, bucket: Bucket) -> list[CountScan]:
        return self.count(snapshot, query)

    def heads(self, snapshot: Snapshot, query: Query, column: str) -> tuple[list[Head], Snapshot]:
        return [], snapshot


def duckdb(part: Snapshot, query: Query, after: Position | None) -> RowScan:
    """DuckDB over everything, or a mask where there is no file."""
    if not part.segments:
        return CachedRowsScan(part, query, None, after)
    return DuckDBScan(part, query, None, after)


def cached(part: Snapshot, query: Query, after: Position | None) -> RowScan:
    """All rows that meet the conditions, found once and kept."""
    return CachedRowsScan(part, query, None, after)


def ordered(part: Snapshot, query: Query, after: Position | None) -> RowScan:
    """Streams in file order; pages as DuckDB has them."""
    return duckdb(part, query, after)


def lookup(reader: Reader) -> Choose:
    """All row groups and the journal, decoded; oldest first is not their order."""
    decoded = reader.resources.row_groups
    assert decoded is not None

    def choose(part: Snapshot, query: Query, after: Position | None) -> RowScan:
        if query.order is not Order.NEWEST_FIRST:
            return duckdb(part, query, after)
        blocks: list[RowBlock] = [
            StoredGroup(segment, group)
            for segment in part.segments
            for group in decoded.row_groups(segment)
        ]
        blocks += journal_runs(part.batches)
        blocks.sort(key=lambda block: block.max_created_at, reverse=True)
        return RowGroupLookup(part, query, None, tuple(blocks), None, after)

    return choose


def forced(reader: Reader, kind: str) -> Reader:
    """`reader` with every answer by way of one kind of scan."""
    choose = lookup(reader) if kind == "lookup" else _CHOICES[kind]
    return Reader(Forced(choose=choose), reader.resources)


_CHOICES: Final[dict[str, Choose]] = {"duckdb": duckdb, "cached": cached, "ordered": ordered}
KINDS: Final = (*_CHOICES, "lookup")
