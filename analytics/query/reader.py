"""Answers to queries over one snapshot of one tenant: planned first, then executed."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pyarrow as pa

from analytics.model.cursors import Position
from analytics.model.filters import Query
from analytics.model.schema import NO_ROWS
from analytics.query.aggregates import top_of
from analytics.query.buckets import Bucket
from analytics.query.engine import Cancellation
from analytics.query.executor import ScanReport, first_rows
from analytics.query.ordered_scan import OrderedScan
from analytics.query.planner import Planner
from analytics.query.scans import Answer, CachedRowsScan, Dense, DuckDBScan, Resources
from analytics.statistics.top_values import SegmentHead, short_values, top_values
from analytics.storage.segment_store import SegmentStore
from analytics.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Reader:
    """Answers queries with what `planner` chooses. Every method may raise StoreFault."""

    planner: Planner
    resources: Resources

    def cancelled_by(self, cancellation: Cancellation) -> "Reader":
        """The same; setting `cancellation` ends what it runs, which then raises QueryStopped."""
        return replace(self, resources=replace(self.resources, cancellation=cancellation))

    def page(
        self,
        snapshot: Snapshot,
        query: Query,
        limit: int,
        after: Position | None = None,
        reports: list[ScanReport] | None = None,
    ) -> pa.Table:
        """At most `limit` rows of `query` in its order, those after `after`; AUDIT_SCHEMA.

        What each scan has read is added to `reports`.
        """
        scans = self.planner.page(snapshot, query, limit, after)
        return first_rows(scans, self.resources, limit, reports)

    def count(self, snapshot: Snapshot, query: Query) -> int:
        """How many rows `query` matches.

        Raises StoreFault if a file is missing: rows that are counted for an export must be there,
        even if the catalog alone says how many there are.
        """
        total = 0
        for scan in self.planner.count(snapshot, query):
            if isinstance(scan, Answer):
                self.resources.segments.check_present(scan.segments)
                total += sum(scan.counts.values())
            else:
                total += scan.count(self.resources)
        return total

    def stream(self, snapshot: Snapshot, query: Query) -> Iterator[pa.Table]:
        """Every row of `query` in its order, a bounded table at a time.

        AUDIT_SCHEMA, or ENCODED_SCHEMA: what need not be ordered comes as it lies in its files.
        """
        scans = self.planner.stream(snapshot, query)
        for scan in ahead(scans, self.resources.segments):
            yield from scan.stream(self.resources)

    def row(self, snapshot: Snapshot, seq: int, query: Query) -> pa.Table:
        """The row with this `seq` if `query` matches it, else no row; AUDIT_SCHEMA."""
        holders = replace(
            snapshot,
            # With `first` this limits the scan to the one seq.
            watermark=min(snapshot.watermark, seq),
            segments=tuple(s for s in snapshot.segments if s.min_seq <= seq <= s.max_seq),
            batches=tuple(b for b in snapshot.batches if b.min_seq <= seq <= b.max_seq),
        )
        return self._by_seq(holders, query, seq, 1)

    def accepted_after(self, snapshot: Snapshot, query: Query, seq: int, limit: int) -> pa.Table:
        """The rows of `query` with a higher `seq`, by `seq`, at most `limit`; AUDIT_SCHEMA.

        In the order of `seq`, not the query's: a caller that continues after the last one misses
        nothing.
        """
        newer = replace(
            snapshot,
            segments=tuple(s for s in snapshot.segments if s.max_seq > seq),
            batches=tuple(b for b in snapshot.batches if b.max_seq > seq),
        )
        return self._by_seq(newer, query, seq + 1, limit)

    def rows_from(self, snapshot: Snapshot, seq: int, limit: int) -> pa.Table:
        """Rows with at least this `seq`, in no order, at most `limit`; AUDIT_SCHEMA."""
        if snapshot.is_empty:
            return NO_ROWS
        return DuckDBScan(snapshot, Query(), None).some(self.resources, seq, limit)

    def count_values(
        self, snapshot: Snapshot, query: Query, column: str, limit: int
    ) -> list[tuple[str, int]]:
        """The `limit` most frequent values of `column` among the rows of `query`, with their rows.

        Most frequent first, ties in the order of code points. Null and the empty string are no
        values.
        """
        heads, rest = self.planner.heads(snapshot, query, column)
        if heads:
            return self._top_by_heads(heads, rest, snapshot, query, column, limit)
        return top_of(self.count_all_values(snapshot, query, column, limit), limit)

    def count_values_of(
        self, snapshot: Snapshot, query: Query, columns: Sequence[str], limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """`count_values` of each of `columns`. What has to be read for several is read once."""
        by_heads: dict[str, list[tuple[str, int]]] = {}
        totals: dict[str, Counter[str]] = {}
        shared: dict[tuple[str, ...], tuple[CachedRowsScan | DuckDBScan, list[str]]] = {}
        for column in columns:
            heads, rest = self.planner.heads(snapshot, query, column)
            if heads:
                by_heads[column] = self._top_by_heads(heads, rest, snapshot, query, column, limit)
                continue
            totals[column] = Counter()
            for scan in self.planner.count_values(snapshot, query, column):
                if isinstance(scan, Answer):
                    totals[column].update(scan.counts)
                else:
                    ids = tuple(segment.segment_id for segment in scan.part.segments)
                    shared.setdefault(ids, (scan, []))[1].append(column)
        for scan, own in shared.values():
            for column, counted in scan.values_of(self.resources, own).items():
                totals[column].update(_rows_by_value(counted))
        return {
            column: by_heads[column] if column in by_heads else top_of(totals[column], limit)
            for column in columns
        }

    def groups(
        self, snapshot: Snapshot, query: Query, columns: Sequence[str], limit: int
    ) -> pa.Table:
        """The `limit` largest groups of rows of `query` with equal values of `columns`.

        Each with its number of rows, blocked ones among them, and the instants of its first and
        last row: see `analytics.query.aggregates.group_schema`. Null is a value here.
        """
        return self.planner.rows(snapshot, query).groups(self.resources, columns, limit)

    def select(
        self,
        snapshot: Snapshot,
        query: Query,
        columns: str,
        behind: str,
        tables: Mapping[str, pa.Table],
    ) -> pa.Table:
        """`columns` (in SQL) of the rows of `query`; `behind` follows its condition.

        Both may name `tables`.
        """
        scan = DuckDBScan(self.planner.rows(snapshot, query).part, query, None)
        return scan.ask(self.resources, columns, behind, tables)

    def _top_by_heads(
        self,
        heads: Sequence[SegmentHead],
        rest: Snapshot,
        snapshot: Snapshot,
        query: Query,
        column: str,
        limit: int,
    ) -> list[tuple[str, int]]:
        """`count_values` of a snapshot of which all but the part `rest` has `heads`."""
        # A value that is rare in one part may be frequent in another: no part is cut off.
        counted = self.count_all_values(rest, query, column, None)
        top = top_values(heads, counted, limit)
        if top is not None:
            return top
        # Heads say too little of values that are equally frequent, short columns everything.
        short, rest = self.planner.heads(snapshot, query, column, short_values)
        totals = self.count_all_values(rest, query, column, None if short else limit)
        for part in short:
            totals.update(dict(part.head.values))
        return top_of(totals, limit)

    def count_all_values(
        self, snapshot: Snapshot, query: Query, column: str, limit: int | None = None
    ) -> Counter[str]:
        """The rows by value of `column`; of the `limit` most frequent ones at least."""
        scans = self.planner.count_values(snapshot, query, column)
        # A value that is rare in one scan may be frequent in all of them together.
        part_limit = limit if len(scans) == 1 else None
        totals: Counter[str] = Counter()
        for scan in scans:
            if isinstance(scan, Answer):
                totals.update(scan.counts)
            else:
                totals.update(_rows_by_value(scan.values(self.resources, column, part_limit)))
        return totals

    def count_over_time(
        self, snapshot: Snapshot, query: Query, bucket: Bucket
    ) -> Counter[tuple[datetime, str]]:
        """How many rows of `query` fall into each bucket with each decision ("" for none)."""
        counts: Counter[tuple[datetime, str]] = Counter()
        for scan in self.planner.over_time(snapshot, query, bucket):
            if not isinstance(scan, Answer):
                counted = scan.over_time(self.resources, bucket.length)
                columns = (column.to_pylist() for column in counted.columns)
                for number, decision, rows in zip(*columns, strict=True):
                    counts[bucket.numbered(number), decision] += rows
            elif scan.hours is not None:
                counts.update(scan.hours)
            else:
                start = bucket.start(scan.segments[0].min_created_at)
                # Only what there is: a bucket begins and ends the summary if it has a row.
                counts.update({(start, value): rows for value, rows in scan.counts.items() if rows})
        return counts

    def series(
        self, snapshot: Snapshot, query: Query, bucket: Bucket, column: str | None, dense: Dense
    ) -> pa.Table:
        """How many rows of `query` fall into each bucket with each value of `column` ("": none).

        Those that are `dense`, see `aggregates.by_step`, in no order. Without a `column` all rows
        count together, as "".
        """
        scan = self.planner.rows(snapshot, query)
        return scan.over_time(self.resources, bucket.length, column, dense)

    def _by_seq(self, part: Snapshot, query: Query, first: int, limit: int) -> pa.Table:
        return self.planner.rows(part, query).by_seq(self.resources, first, limit)


def _rows_by_value(counted: pa.Table) -> dict[str, int]:
    """See `aggregates.by_value`."""
    return dict(zip(counted["value"].to_pylist(), counted["rows"].to_pylist(), strict=True))


SEGMENTS_AHEAD: Final = 16
"""Segments of an export that are on their way while one is being read."""


def ahead(
    scans: Iterable[OrderedScan | DuckDBScan], segments: SegmentStore
) -> Iterator[OrderedScan | DuckDBScan]:
    """`scans`; while one is read, `segments` fetches what the next ones read."""
    coming: deque[OrderedScan | DuckDBScan] = deque()
    if segments.is_local:
        yield from scans
        return
    count = 0
    for scan in scans:
        segments.fetch_ahead(scan.part.segments)
        coming.append(scan)
        count += len(scan.part.segments)
        while coming and count > SEGMENTS_AHEAD:
            scan = coming.popleft()
            count -= len(scan.part.segments)
            yield scan
    yield from coming
