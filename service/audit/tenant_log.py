"""The audit log of one organisation: the only way from an organisation to its rows."""

import time
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

import pyarrow as pa

from analytics.cache.lru import ENTRY_BYTES
from analytics.export.writers import FileEncoding, Piece
from analytics.model.cursors import Position
from analytics.model.filters import Query
from analytics.model.retention import Tier, retention_floor
from analytics.query.aggregates import Group, groups_of
from analytics.query.buckets import Bucket
from analytics.query.cost import is_long_count, is_long_page, reads_many
from analytics.query.executor import ScanReport
from analytics.query.newest_texts import Row
from analytics.query.reader import Reader
from analytics.query.scans import Dense
from analytics.query.summaries import TOP_PARAMETERS, Summary, summarise, summary_of
from analytics.statistics.zone_maps import prune
from analytics.storage.snapshot import Snapshot
from service.audit.lake import Lake
from service.audit.lake_queries import LakeQueries
from service.core.fair_queue import Length
from service.store.store import Store
from service.store.tables import Organisation

_LINE_BYTES: Final = 400

_Result = TypeVar("_Result")
_Line = TypeVar("_Line")


@dataclass(frozen=True, slots=True)
class TenantLog:
    """The rows of `org` in one snapshot, from the retention floor on (None: all).

    Each method adds the floor to its query: a caller cannot leave it out. Queries take
    `time_max_s` at most, or COUNTERSIGN_QUERY_MAX_S. Raises QueryTooSlow, StoreFault.
    """

    org: Organisation
    snapshot: Snapshot
    floor: datetime | None
    queries: LakeQueries
    ran_s: list[float] = field(default_factory=list, compare=False)
    """How long each query ran, without the time that it waited for its turn."""

    def within(self, query: Query) -> Query:
        """`query` over the rows that may be seen."""
        return query.not_before(self.floor)

    async def page(
        self,
        query: Query,
        limit: int,
        after: Position | None = None,
        time_max_s: float | None = None,
        reports: list[ScanReport] | None = None,
    ) -> pa.Table:
        """The rows that follow `after` in the query's order. Appends what each scan has read."""
        within = self.within(query)
        return await self._query(
            lambda reader: reader.page(self.snapshot, within, limit, after, reports),
            is_long_page(self.snapshot, within),
            time_max_s,
        )

    async def texts(
        self,
        query: Query,
        limit: int,
        after: Position | None = None,
        reports: list[ScanReport] | None = None,
    ) -> list[Row]:
        """The rows of `page` as JSON objects; without a scan if they are kept.

        Where `reports` are wanted the rows are read.
        """
        within, newest = self.within(query), self.queries.newest
        rows = newest.page(self.snapshot, within, limit, after) if reports is None else None
        if rows is None:
            found = await self.page(query, limit, after, reports=reports)
            rows = newest.rows_of(found, self.org.id)
            newest.learn(self.snapshot, within, limit, after, rows)
        return rows

    async def row(self, seq: int) -> pa.Table:
        """The row with this `seq`, or none."""
        within = self.within(Query())
        return await self._query(lambda reader: reader.row(self.snapshot, seq, within))

    def shows(self, created_at: datetime) -> bool:
        """Whether a row of this instant may be seen."""
        return self.floor is None or created_at >= self.floor

    async def rows_between(self, first: int, end: int, limit: int) -> pa.Table:
        """Rows with a seq from `first` to before `end`, in no order, at most `limit`.

        Also those that must not be seen: for their hashes alone.
        """
        part = self.snapshot.between(first, end)
        return await self._query(lambda reader: reader.rows_from(part, first, limit))

    async def count(self, query: Query, time_max_s: float) -> int:
        """How many rows the query has."""
        within = self.within(query)
        return await self._query(
            lambda reader: reader.count(self.snapshot, within),
            is_long_count(self.snapshot, within),
            time_max_s,
        )

    async def summary(
        self,
        query: Query,
        bucket: Bucket,
        time_max_s: float | None = None,
        tops: Sequence[str] = TOP_PARAMETERS,
    ) -> Summary:
        """Counts over time and the most frequent values of the filters `tops`."""
        kept = await self.queries.kept_sum(self.snapshot, self.within(query))
        found = kept and summary_of(kept, query, self.floor, bucket, tops)
        if found:
            return found
        return await self._query(
            lambda reader: summarise(reader, self.snapshot, query, self.floor, bucket, tops, kept),
            is_long_count(self.snapshot, self.within(query)),
            time_max_s,
        )

    async def series(
        self, query: Query, bucket: Bucket, column: str | None, dense: Dense
    ) -> pa.Table:
        """How many rows fall into each bucket with each value of `column`, see `Reader.series`."""
        within = self.within(query)
        return await self._query(
            lambda reader: reader.series(self.snapshot, within, bucket, column, dense),
            reads_many(self.snapshot, within),
        )

    async def values(
        self, query: Query, column: str, limit: int, time_max_s: float
    ) -> list[tuple[str, int]]:
        """The most frequent values of `column` and their counts."""
        within = self.within(query)
        return await self._kept(
            within,
            (column, limit),
            lambda reader: reader.count_values(self.snapshot, within, column, limit),
            is_long_count(self.snapshot, within),
            time_max_s,
        )

    async def groups(
        self, query: Query, columns: Sequence[str], limit: int, time_max_s: float
    ) -> list[Group]:
        """The largest groups with equal values of `columns`, most rows first."""
        within = self.within(query)
        return await self._kept(
            within,
            (tuple(columns), limit),
            # Made of the table in the thread: for 10,000 groups that takes 60 ms.
            lambda reader: groups_of(reader.groups(self.snapshot, within, columns, limit)),
            reads_many(self.snapshot, within),
            time_max_s,
        )

    async def _kept(
        self,
        query: Query,
        name: Hashable,
        function: Callable[[Reader], list[_Line]],
        is_long: bool,
        time_max_s: float,
    ) -> list[_Line]:
        """What `function` tells, which has a `name` of its own, of the rows of `query`.

        It is kept, and read again once a file or a batch of the query's time is another one.
        """
        part = prune(self.snapshot, query)
        seqs = [s.max_seq for s in part.segments] + [b.max_seq for b in part.batches]
        key = (
            (self.snapshot.tenant_id, query, name),
            tuple(segment.segment_id for segment in part.segments),
            tuple(batch.min_seq for batch in part.batches),
            min(max(seqs, default=0), self.snapshot.watermark),
        )
        is_known, lines = self.queries.kept.find(key)
        if not is_known:
            lines = await self._query(function, is_long, time_max_s)
            size = ENTRY_BYTES + _LINE_BYTES * (len(seqs) + len(lines))
            self.queries.kept.keep(key, lines, size)
        return list(lines)

    async def accepted_after(
        self, query: Query, seq: int, limit: int, time_max_s: float | None
    ) -> pa.Table:
        """The rows accepted after `seq`, in the order of their acceptance."""
        within = self.within(query)
        return await self._query(
            lambda reader: reader.accepted_after(self.snapshot, within, seq, limit),
            time_max_s=time_max_s,
        )

    async def read(
        self,
        function: Callable[[Reader, Snapshot, Query], _Result],
        query: Query,
        time_max_s: float | None = None,
    ) -> _Result:
        """The result of `function`, a long computation on rows of `query`."""
        within = self.within(query)
        return await self._query(
            lambda reader: function(reader, self.snapshot, within),
            is_long=True,
            time_max_s=time_max_s,
        )

    async def compute(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, a long computation on what was read, in the organisation's turn."""
        return await self._query(lambda _: work(), is_long=True)

    async def _query(
        self,
        function: Callable[[Reader], _Result],
        is_long: bool = False,
        time_max_s: float | None = None,
    ) -> _Result:
        def timed(reader: Reader) -> _Result:
            began_at = time.monotonic()
            try:
                return function(reader)
            finally:
                self.ran_s.append(time.monotonic() - began_at)

        length = Length.LONG if is_long else Length.SHORT
        return await self.queries.run(timed, time_max_s, tenant_id=self.org.id, length=length)

    def export(
        self, query: Query, encoding: FileEncoding, ends_at: float
    ) -> AsyncGenerator[Piece, None]:
        """The file of all rows, see `LakeQueries.export`."""
        return self.queries.export(self.snapshot, self.within(query), encoding, ends_at)


async def open_log(store: Store, lake: Lake, org: Organisation, now: datetime) -> TenantLog:
    """The log of `org` as of now."""
    floor = retention_floor(Tier(org.tier), now)
    return TenantLog(org, await store.snapshot(org.id), floor, lake.queries)
