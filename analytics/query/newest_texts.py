"""The newest rows of each tenant, kept as the text of a page and moved on by what comes.

A seal or a merge moves rows and changes none, and what comes and goes on days before the oldest
row that is kept is of no concern.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from sys import getsizeof
from typing import Final

import pyarrow as pa

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.errors import StoreFault
from analytics.model.filters import Order, Query
from analytics.model.instants import utc_day
from analytics.model.schema import NO_ROWS
from analytics.storage.journal_batches import JournalBatch
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot

ROWS_MAX: Final = 256
"""How many rows of a tenant are kept."""

QUICK_ROWS: Final = 2_000
QUICK_BATCHES: Final = 32
"""How much may have come since, to be added at once."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEQ_MAX: Final = 2**63 - 1
_ROW_BYTES: Final = 250
_Days = dict[date, tuple[int, int, int]]
"""How many rows a day has, and their lowest and highest seq."""

RowPosition = tuple[int, int]
"""Where a row stands in the order: `created_at` in microseconds, and `seq`."""

Row = tuple[RowPosition, str]
"""A place, and the row's JSON object."""


def _place(at: datetime, seq: int) -> RowPosition:
    return (at - _EPOCH) // timedelta(microseconds=1), seq


def _instant(place: RowPosition) -> datetime:
    return _EPOCH + timedelta(microseconds=place[0])


_FIRST_INSTANT: Final = datetime.min.replace(tzinfo=UTC)
_OLDEST: Final = _place(_FIRST_INSTANT, -1)
_NEWEST: Final = _place(datetime.max.replace(tzinfo=UTC), _SEQ_MAX)


@dataclass(frozen=True, slots=True)
class _NewestRows:
    """All `rows` from `reach` on, newest first, of a snapshot of so many `batches`.

    `days` tells of all its rows from the day of `reach` on.
    """

    segments: tuple[Segment, ...]
    batches: int
    watermark: int
    days: _Days
    reach: RowPosition
    rows: Sequence[Row]

    @property
    def size(self) -> int:
        """About how many bytes it takes, without the segments."""
        return ENTRY_BYTES + sum(_ROW_BYTES + getsizeof(text) for _, text in self.rows)


class NewestTexts:
    """Pages of the newest rows of all: no condition, no file, no thread.

    What it knows are pages that were read before: it is told of them by `learn`.
    """

    def __init__(
        self, decoded: Decoded, encode: Callable[[pa.Table, str], list[str]], bytes_max: int
    ) -> None:
        """`encode` gives the JSON objects of rows of a tenant."""
        self._decoded = decoded
        self._encode = encode
        self._kept = ByteCache(bytes_max)

    def page(
        self, snapshot: Snapshot, query: Query, limit: int, after: Position | None
    ) -> list[Row] | None:
        """The rows that `Reader.page` gives; None if not all are kept, or too much has come."""
        newest = self._moved(snapshot) if _is_of_all(query) else None
        if newest is None:
            return None
        (start, end), mark = _ends(query, after), _mark(snapshot, after)
        within = (row for row in newest.rows if end <= row[0] < start and row[0][1] <= mark)
        rows = list(islice(within, limit))
        return None if len(rows) < limit and newest.reach > end else rows

    def learn(
        self,
        snapshot: Snapshot,
        query: Query,
        limit: int,
        after: Position | None,
        rows: Sequence[Row],
    ) -> None:
        """Keep `rows`, which `Reader.page` gave, if they begin where what is kept ends."""
        if not _is_of_all(query):
            return
        parts: list[Segment | JournalBatch] = [*snapshot.segments, *snapshot.batches]
        mark = _mark(snapshot, after)
        if any(part.max_seq > mark for part in parts):
            return  # a page does not show what was accepted after its watermark
        start, end = _ends(query, after)
        newest = self._moved(snapshot)
        known: Sequence[Row] = ()
        if newest is not None:
            known, known_to = newest.rows, newest.reach
        else:
            last = max((part.max_created_at for part in parts), default=_FIRST_INSTANT)
            known_to = _place(last, _SEQ_MAX)
        if start < known_to:
            return
        is_full = len(rows) >= limit
        rows = [*(row for row in known if row[0] >= start), *rows]
        reach = rows[-1][0] if is_full else min(start, end)
        self._keep(snapshot, {}, parts, reach, rows)

    def rows_of(self, rows: pa.Table, tenant_id: str) -> list[Row]:
        """The `rows` of a page, AUDIT_SCHEMA."""
        return list(zip(_places(rows), self._encode(rows, tenant_id), strict=True))

    def _moved(self, snapshot: Snapshot) -> _NewestRows | None:
        """The newest rows of `snapshot`; None if they are not known, or not at once."""
        newest: _NewestRows | None = self._kept.find(snapshot.tenant_id)[1]
        if newest is None or snapshot.watermark < newest.watermark:
            return None
        # Seqs follow commits: what came since has higher ones than there were.
        came = takewhile(lambda b: b.first_seq > newest.watermark, reversed(snapshot.batches))
        added = list(islice(came, QUICK_BATCHES + 1))
        if len(added) > QUICK_BATCHES or sum(batch.rows for batch in added) > QUICK_ROWS:
            return None
        before = snapshot.batches[: len(snapshot.batches) - len(added)]
        # Batches only go: if they are as many, they are the same.
        if newest.segments is not snapshot.segments or newest.batches != len(before):
            # Rows go by whole segments and days, and those that come have higher seqs. So if a day
            # has as many as before, between the same seqs, they were sealed or merged.
            if _tally({}, [*snapshot.segments, *before], newest.reach) != newest.days:
                return None
        elif not added:
            return newest
        try:
            fresh = self._rows(snapshot.tenant_id, added, newest.reach)
        except StoreFault:
            return None  # the scan raises it, if it needs what is damaged
        rows = sorted([*newest.rows, *fresh], reverse=True)
        return self._keep(snapshot, newest.days, added, newest.reach, rows)

    def _rows(
        self, tenant_id: str, batches: Iterable[JournalBatch], reach: RowPosition
    ) -> list[Row]:
        """The newest rows of `batches` from `reach` on, ROWS_MAX + 1 at most. Raises StoreFault."""
        wanted = [b for b in batches if _place(b.max_created_at, _SEQ_MAX) >= reach]
        rows = pa.concat_tables([NO_ROWS, *map(self._decoded.batch_rows, wanted)])
        places = [(place, n) for n, place in enumerate(_places(rows)) if place >= reach]
        # With one more than are kept the others are known to be missing.
        newest = [n for _, n in sorted(places, reverse=True)[: ROWS_MAX + 1]]
        return self.rows_of(rows.take(pa.array(newest, pa.int64())), tenant_id)

    def _keep(
        self,
        snapshot: Snapshot,
        days: _Days,
        parts: Iterable[Segment | JournalBatch],
        reach: RowPosition,
        rows: Sequence[Row],
    ) -> _NewestRows:
        if len(rows) > ROWS_MAX:
            rows = rows[:ROWS_MAX]
            reach = rows[-1][0]
        newest = _NewestRows(
            snapshot.segments,
            len(snapshot.batches),
            snapshot.watermark,
            _tally(days, parts, reach),
            reach,
            rows,
        )
        self._kept.keep(snapshot.tenant_id, newest, newest.size)
        return newest


def position_of(row: Row, snapshot: Snapshot, after: Position | None) -> Position:
    """Where the page behind `row` begins."""
    # All pages end at the watermark of the first: rows accepted since are in none of them.
    return Position((after or snapshot).watermark, _instant(row[0]), row[0][1])


def _places(rows: pa.Table) -> Iterable[RowPosition]:
    instants = rows["created_at"].cast(pa.int64()).to_pylist()
    return zip(instants, rows["seq"].to_pylist(), strict=True)


def _is_of_all(query: Query) -> bool:
    return not query.conditions and query.order is Order.NEWEST_FIRST


def _mark(snapshot: Snapshot, after: Position | None) -> int:
    return min(snapshot.watermark, (after or snapshot).watermark)


def _ends(query: Query, after: Position | None) -> tuple[RowPosition, RowPosition]:
    """The place that all rows of a page come after, and the last that one may have."""
    start = _NEWEST if query.until is None else _place(query.until, -1)
    if after is not None:
        start = min(start, _place(after.created_at, after.seq))
    return start, _OLDEST if query.since is None else _place(query.since, -1)


def _tally(days: _Days, parts: Iterable[Segment | JournalBatch], reach: RowPosition) -> _Days:
    """`days` and the rows of `parts`, from the day of `reach` on."""
    first = utc_day(_instant(reach))
    tallied = {day: rows for day, rows in days.items() if day >= first}
    for part in parts:
        if part.day >= first:
            rows, least, most = tallied.get(part.day, (0, part.min_seq, part.max_seq))
            least, most = min(least, part.min_seq), max(most, part.max_seq)
            tallied[part.day] = rows + part.rows, least, most
    return tallied
