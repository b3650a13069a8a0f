"""What is asked of rows, answered in plain Python."""

from collections import Counter
from datetime import datetime

from analytics.model.cursors import Position
from analytics.model.filters import FILTER_COLUMNS, Order, Query
from analytics.model.rows import AuditRow
from analytics.query.aggregates import TOP_MAX
from analytics.query.buckets import Bucket
from analytics.query.reader import Reader
from analytics.query.summaries import TOP_PARAMETERS, Summary, ValueCount, summarise
from analytics.storage.snapshot import Snapshot


def matching(accepted: dict[int, AuditRow], query: Query, watermark: int) -> dict[int, AuditRow]:
    return {
        seq: row
        for seq, row in accepted.items()
        if seq <= watermark
        and (query.since is None or row.created_at >= query.since)
        and (query.until is None or row.created_at < query.until)
        and all(one.is_met(getattr(row, one.column)) for one in query.conditions)
    }


def in_order(rows: dict[int, AuditRow], order: Order) -> list[int]:
    """Their seqs in the order every page has."""
    places = [(row.created_at, seq) for seq, row in rows.items()]
    return [seq for _, seq in sorted(places, reverse=order is Order.NEWEST_FIRST)]


def counted(rows: list[AuditRow], bucket: Bucket) -> dict[datetime, Counter[str]]:
    """Rows by bucket and decision."""
    kept = {Bucket.DAY: 0, Bucket.HOUR: 1, Bucket.MINUTE: 2}[bucket]
    counts: dict[datetime, Counter[str]] = {}
    for row in rows:
        at = row.created_at
        hour, minute = (at.hour if kept > 0 else 0), (at.minute if kept > 1 else 0)
        start = at.replace(hour=hour, minute=minute, second=0, microsecond=0)
        named = row.decision if row.decision in {"ALLOWED", "BLOCKED"} else "other"
        counts.setdefault(start, Counter())[named] += 1
    return counts


def of_buckets(summary: Summary) -> dict[datetime, Counter[str]]:
    """What `counted` would say of the rows that were summed up."""
    return {
        one.start: Counter(
            {
                name: rows
                for name, rows in (
                    ("ALLOWED", one.allowed),
                    ("BLOCKED", one.blocked),
                    ("other", one.other),
                )
                if rows
            }
        )
        for one in summary.buckets
        if one.allowed + one.blocked + one.other
    }


def most_frequent(rows: list[AuditRow], parameter: str) -> list[ValueCount]:
    """The ten values that a person counting rows would name."""
    counts = Counter(getattr(row, FILTER_COLUMNS[parameter]) for row in rows)
    ranked = sorted((-n, value) for value, n in counts.items() if value)
    return [ValueCount(value, -n) for n, value in ranked[:TOP_MAX]]


def paged(reader: Reader, snapshot: Snapshot, query: Query, limit: int) -> list[int]:
    """The seqs of all pages, one behind the other, as cursors lead through them."""
    seen: list[int] = []
    after: Position | None = None
    while rows := reader.page(snapshot, query, limit, after).to_pylist():
        assert len(rows) <= limit
        seen += [row["seq"] for row in rows]
        after = Position(snapshot.watermark, rows[-1]["created_at"], rows[-1]["seq"])
    return seen


def check_all_answers(
    reader: Reader,
    snapshot: Snapshot,
    query: Query,
    rows_in: dict[int, AuditRow],
    limit: int,
    bucket: Bucket,
) -> None:
    """Whatever `reader` can be asked of `query`, of which `rows_in` are the rows."""
    expected = in_order(rows_in, query.order)
    rows = list(rows_in.values())
    assert paged(reader, snapshot, query, limit) == expected
    assert reader.count(snapshot, query) == len(expected)
    streamed = list(reader.stream(snapshot, query))
    assert [seq for table in streamed for seq in table["seq"].to_pylist()] == expected
    for seen in (0, snapshot.watermark // 2):
        after = reader.accepted_after(snapshot, query, seen, limit)
        assert after["seq"].to_pylist() == [seq for seq in sorted(rows_in) if seq > seen][:limit]
    for seq in (1, snapshot.watermark):
        assert reader.row(snapshot, seq, query).num_rows == (seq in rows_in)
    summary = summarise(reader, snapshot, query, None, bucket)
    assert summary.total == len(expected)
    assert summary.top == {name: most_frequent(rows, name) for name in TOP_PARAMETERS}
    assert of_buckets(summary) == counted(rows, bucket)
