"""What the catalog says unopened: never that a matching row is not there, and as much as it can."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.model.cursors import Position
from analytics.model.filters import Condition, Order, Query, Term, parse_query
from analytics.model.rows import AuditRow
from analytics.statistics.zone_maps import known_counts, may_be_within, may_match
from analytics.storage.segment_metadata import Segment, describe
from analytics.storage.segment_writer import newest_first
from tests.analytics.samples import DAY, NOON, TENANT, batch_of, sample_row, table_of
from tests.budgets import budget

HOUR = timedelta(hours=1)
ALL = 10**9
"""A watermark above every row."""

EVENTS = ("blocklist_hit", "install_allowed", "cooldown_active")


def segment_of(rows: list[AuditRow], first_seq: int = 1) -> Segment:
    return describe("seg_1", TENANT, DAY, [newest_first(table_of(rows, first_seq))])


TERMS = st.builds(
    Term,
    st.sampled_from([*EVENTS, "block", "ALLOWED", "BLOCKED", ""]),
    st.booleans(),
    st.booleans(),
)
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["event", "decision", "package_name"]),
    st.lists(TERMS, min_size=1, max_size=3).map(tuple),
)
INSTANTS = st.integers(0, 12).map(lambda minutes: NOON + timedelta(minutes=minutes))
ROWS = st.lists(
    st.builds(
        sample_row,
        INSTANTS,
        event=st.sampled_from(EVENTS),
        decision=st.sampled_from(["ALLOWED", "BLOCKED", "", None]),
        package_name=st.sampled_from(["block", "left-pad", None]),
    ),
    min_size=1,
    max_size=6,
)
QUERIES = st.builds(
    Query,
    since=st.none() | INSTANTS,
    until=st.none() | INSTANTS,
    conditions=st.lists(CONDITIONS, max_size=2).map(tuple),
    order=st.sampled_from(Order),
)
POSITIONS = st.none() | st.builds(Position, st.integers(1, 12), INSTANTS, st.integers(1, 12))


def matches(
    rows: list[AuditRow], first_seq: int, query: Query, watermark: int, after: Position | None
) -> list[AuditRow]:
    """The rows of `query` behind `after`, by the rules in plain Python."""
    mark = watermark if after is None else min(watermark, after.watermark)
    found = []
    for seq, row in enumerate(rows, start=first_seq):
        place = (row.created_at, seq)
        if seq > mark:
            continue
        if query.since is not None and row.created_at < query.since:
            continue
        if query.until is not None and row.created_at >= query.until:
            continue
        if after is not None:
            last = (after.created_at, after.seq)
            if place >= last if query.order is Order.NEWEST_FIRST else place <= last:
                continue
        if all(one.is_met(getattr(row, one.column)) for one in query.conditions):
            found.append(row)
    return found


@settings(max_examples=budget(80, 400))
@given(
    rows=ROWS,
    first_seq=st.integers(1, 6),
    query=QUERIES,
    watermark=st.integers(0, 12),
    after=POSITIONS,
)
def test_what_holds_a_match_is_never_skipped(rows, first_seq, query, watermark, after):
    """A skipped segment is rows an auditor does not see."""
    segment = segment_of(rows, first_seq)
    found = matches(rows, first_seq, query, watermark, after)

    if found:
        assert may_match(segment, query, watermark, after)
        assert may_be_within(batch_of(rows, first_seq, DAY), query, watermark, after)


@settings(max_examples=budget(80, 400))
@given(rows=ROWS, query=QUERIES, watermark=st.integers(0, 12))
@pytest.mark.parametrize("column", ["event", "decision"])
def test_counts_that_are_known_are_exact(column, rows, query, watermark):
    """Otherwise a chart made without opening a file would differ from one that opened it."""
    counted = known_counts(segment_of(rows), query, watermark, column)
    if counted is None:
        return

    expected: dict[str, int] = {}
    for row in matches(rows, 1, query, watermark, None):
        value = getattr(row, column) or ""
        expected[value] = expected.get(value, 0) + 1
    assert counted == expected


BLOCKED = segment_of(
    [sample_row(NOON), sample_row(NOON + HOUR), sample_row(NOON, event="cooldown_active")], 5
)


@pytest.mark.parametrize(
    ("parameters", "is_read"),
    [
        ({}, True),
        ({"since": ["2026-03-04T13:00:00Z"]}, True),
        ({"since": ["2026-03-04T13:00:00.000001Z"]}, False),
        ({"until": ["2026-03-04T12:00:00Z"]}, False),
        ({"until": ["2026-03-04T12:00:00.000001Z"]}, True),
        ({"event": ["blocklist_hit"]}, True),
        ({"event": ["install_allowed"]}, False),
        ({"event": ["install_allowed", "cooldown_active"]}, True),
        ({"event": ["!blocklist_hit"]}, True),
        ({"event": ["!blocklist_hit", "!cooldown_active"]}, False),
        ({"decision": ["ALLOWED"]}, False),
        ({"decision": ["!BLOCKED"]}, False),
        ({"package": ["not-there"]}, True),
    ],
)
def test_a_segment_is_skipped_when_its_statistics_rule_it_out(parameters, is_read):
    assert may_match(BLOCKED, parse_query(parameters), ALL) is is_read


@pytest.mark.parametrize(
    ("order", "at", "seq", "is_read"),
    [
        (Order.NEWEST_FIRST, NOON + HOUR, 9, True),
        (Order.NEWEST_FIRST, NOON, 6, True),
        (Order.NEWEST_FIRST, NOON, 5, False),
        (Order.NEWEST_FIRST, NOON - HOUR, 9, False),
        (Order.OLDEST_FIRST, NOON, 5, True),
        (Order.OLDEST_FIRST, NOON + HOUR, 6, True),
        (Order.OLDEST_FIRST, NOON + HOUR, 7, False),
    ],
)
def test_a_segment_before_the_cursor_is_skipped(order, at, seq, is_read):
    """A page in the middle does not open what earlier pages have shown."""
    after = Position(ALL, at, seq)

    assert may_match(BLOCKED, Query(order=order), ALL, after) is is_read


def test_a_segment_above_the_watermark_is_skipped():
    """Rows accepted after page one are in no later page, so their files need not be opened."""
    assert may_match(BLOCKED, Query(), 5)
    assert not may_match(BLOCKED, Query(), 4)
    assert not may_match(BLOCKED, Query(), ALL, Position(4, NOON + HOUR, 9))


def test_a_null_decision_satisfies_a_negation():
    """The catalog counts null as the empty string."""
    undecided = segment_of([sample_row(decision=None)])

    assert may_match(undecided, parse_query({"decision": ["!BLOCKED"]}), ALL)
    assert not may_match(undecided, parse_query({"decision": ["BLOCKED"]}), ALL)


@pytest.mark.parametrize(
    ("parameters", "column", "counts"),
    [
        ({}, "event", {"blocklist_hit": 2, "cooldown_active": 1}),
        ({}, "decision", {"BLOCKED": 3}),
        ({"since": ["2026-03-04"], "until": ["2026-03-04"]}, "decision", {"BLOCKED": 3}),
        ({"event": ["cooldown_active"]}, "event", {"cooldown_active": 1}),
        ({"event": ["cooldown_active"]}, "decision", None),
        ({"decision": ["BLOCKED"]}, "event", {"blocklist_hit": 2, "cooldown_active": 1}),
        ({"package": ["left-pad"]}, "decision", None),
        ({"since": ["2026-03-04T12:30:00Z"]}, "decision", None),
        ({"until": ["2026-03-04T13:00:00Z"]}, "decision", None),
    ],
)
def test_counts_are_known_where_nothing_else_decides(parameters, column, counts):
    assert known_counts(BLOCKED, parse_query(parameters), ALL, column) == counts


def test_counts_are_not_known_of_a_segment_that_reaches_above_the_watermark():
    """Some of its rows are not in the snapshot, and the catalog does not say which."""
    assert known_counts(BLOCKED, Query(), BLOCKED.max_seq, "event") is not None
    assert known_counts(BLOCKED, Query(), BLOCKED.max_seq - 1, "event") is None


def test_an_uncounted_column_is_not_known():
    """There are too many packages to count them for each file."""
    assert known_counts(BLOCKED, Query(), ALL, "package_name") is None


def test_a_batch_is_skipped_by_its_bounds_and_its_first_seq():
    batch = replace(batch_of([sample_row(datetime(2026, 3, 4, 8, tzinfo=UTC))]), first_seq=5)

    assert may_be_within(batch, parse_query({"since": ["2026-03-04T08:00:00Z"]}), 5, None)
    assert not may_be_within(
        batch, parse_query({"since": ["2026-03-04T08:00:00.000001Z"]}), 5, None
    )
    assert may_be_within(batch, parse_query({"until": ["2026-03-04T08:00:00.000001Z"]}), 5, None)
    assert not may_be_within(batch, parse_query({"until": ["2026-03-04T08:00:00Z"]}), 5, None)
    assert not may_be_within(batch, Query(), 4, None)
