"""What is known of a segment's values never changes an answer; it only saves the way to it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics import segments
from analytics import values as values_module
from analytics.cursors import Position
from analytics.decoded import Decoded
from analytics.engine import Engine
from analytics.filters import Condition, Order, Query, Term, parse_query
from analytics.queries import Snapshot
from analytics.rows import AuditRow
from analytics.summaries import Bucket, summarise
from analytics.values import ValueIndex, count_values
from analytics.windows import hopeful_windows
from tests.analytics.samples import SampleLake, open_lake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
TEXTS = ["a", "ab", "abc", "b", "", "é", "a\x00b", "%", "_", "😀"]
TERMS = st.builds(Term, st.sampled_from(TEXTS), st.booleans(), st.booleans())
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["package_name", "subject", "version", "event"]),
    st.lists(TERMS, min_size=1, max_size=3).map(tuple),
)
INSTANTS = st.integers(0, 60).map(lambda hours: MIDNIGHT - timedelta(hours=hours))
ROW = st.builds(
    sample_row,
    INSTANTS,
    package_name=st.sampled_from([*TEXTS, None]),
    subject=st.sampled_from(["a", "ab", None]),
    version=st.sampled_from(["a", "b", None]),
)
RUNS = st.lists(
    st.tuples(st.lists(ROW, min_size=1, max_size=10), st.booleans()), min_size=1, max_size=8
)
BOUNDS = st.none() | INSTANTS


def learn(lake: SampleLake, *columns: str) -> None:
    """Have the lake's index know these columns of every segment."""
    assert lake.reader.values is not None
    for column in columns:
        anything = Query(
            conditions=(Condition(column, (Term("", is_prefix=True, is_negated=False),)),)
        )
        lake.reader.values.want(lake.segments, anything)
    lake.reader.values.learn()


def seqs(lake: SampleLake, query: Query, limit: int = 10) -> list[int]:
    return lake.reader.page(lake.snapshot(), query, limit)["seq"].to_pylist()


def model(accepted: dict[int, AuditRow], query: Query, watermark: int) -> list[int]:
    """The seqs that `query` finds, said in plain Python."""
    found = [
        (row.created_at, seq)
        for seq, row in accepted.items()
        if seq <= watermark
        and (query.since is None or row.created_at >= query.since)
        and (query.until is None or row.created_at < query.until)
        and all(one.is_met(getattr(row, one.column)) for one in query.conditions)
    ]
    return [seq for _, seq in sorted(found, reverse=query.order is Order.NEWEST_FIRST)]


def paged(lake: SampleLake, snapshot: Snapshot, query: Query, limit: int) -> list[int]:
    """The seqs of all pages, one behind the other, as cursors lead through them."""
    seen: list[int] = []
    after: Position | None = None
    while rows := lake.reader.page(snapshot, query, limit, after).to_pylist():
        assert len(rows) <= limit
        seen += [row["seq"] for row in rows]
        after = Position(snapshot.watermark, rows[-1]["created_at"], rows[-1]["seq"])
    return seen


@given(
    texts=st.lists(st.lists(st.none() | st.sampled_from(TEXTS), max_size=8), max_size=4),
    term=TERMS,
)
def test_rows_alike_is_a_count_over_all_rows(texts, term):
    """Whatever the row groups; null is like nothing."""
    counted = count_values([pa.array(chunk, pa.string()) for chunk in texts])
    alike = Term(term.text, term.is_prefix, is_negated=False)

    expected = sum(alike.is_met(text) for chunk in texts for text in chunk)

    assert counted is not None
    assert counted.rows_alike(term) == expected


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=120)
@given(
    runs=RUNS,
    since=BOUNDS,
    until=BOUNDS,
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    order=st.sampled_from(Order),
    limit=st.integers(1, 12),
    behind=st.integers(0, 6),
    known=st.lists(st.sampled_from(["package_name", "subject", "version"]), unique=True),
    learnt=st.integers(0, 8),
    group_rows=st.integers(1, 6),
)
def test_every_answer_is_the_plain_lists(
    tmp_path_factory,
    runs,
    since,
    until,
    conditions,
    order,
    limit,
    behind,
    known,
    learnt,
    group_rows,
):
    """With all, some or no columns of some of the segments known: pages, count, stream, summary."""
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    accepted: dict[int, AuditRow] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", group_rows)
        for number, (rows, is_sealed) in enumerate(runs):
            accepted |= lake.add(rows, is_sealed=is_sealed)
            if number == learnt:
                learn(lake, *known)
        query = Query(since, until, conditions, order)
        snapshot = replace(lake.snapshot(), watermark=max(1, lake.last_seq - behind))
        expected = model(accepted, query, snapshot.watermark)

        try:
            for _ in range(2):  # and once more with what the first round wanted to know
                assert paged(lake, snapshot, query, limit) == expected
                assert lake.reader.count(snapshot, query) == len(expected)
                streamed = list(lake.reader.stream(snapshot, query))
                assert [seq for rows in streamed for seq in rows["seq"].to_pylist()] == expected
                summary = summarise(lake.reader, snapshot, query, None, Bucket.DAY)
                assert summary.total == len(expected)
                lake.reader.values.learn()
        finally:
            lake.reader.engine.close()


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch):
    """Call it, and from then on DuckDB answers nothing."""

    def refuse(*_: object) -> None:
        raise AssertionError("DuckDB was asked")

    return lambda: monkeypatch.setattr(Engine, "select", refuse)


@pytest.mark.parametrize("order", ["desc", "asc"])
def test_a_value_that_is_nowhere_opens_no_file(lake, no_engine, order):
    """Asked for once, it is known from then on."""
    for hours in range(5):
        lake.add([sample_row(MIDNIGHT - timedelta(days=hours))] * 3, is_sealed=True)
    query = parse_query({"package": ["nowhere", "no*"], "actor": ["key_1"], "order": [order]})
    assert seqs(lake, query) == []
    learn(lake, "package_name")
    no_engine()
    for segment in lake.segments:
        segment.path(lake.root).unlink()

    assert seqs(lake, query) == []
    assert lake.reader.count(lake.snapshot(), query) == 0
    assert list(lake.reader.stream(lake.snapshot(), query)) == []


def test_only_files_that_hold_a_rare_value_are_opened(lake):
    """In one question to DuckDB, however far apart they lie."""
    for days in range(30):
        name = "rare" if days in {3, 29} else "common"
        lake.add([sample_row(MIDNIGHT - timedelta(days=days), package_name=name)], is_sealed=True)
    learn(lake, "package_name")
    for segment in lake.segments:
        if (lake.segments[0].day - segment.day).days not in {3, 29}:
            segment.path(lake.root).unlink()

    assert seqs(lake, parse_query({"package": ["rare"]})) == [4, 30]
    assert seqs(lake, parse_query({"package": ["rare"], "order": ["asc"]})) == [30, 4]


def test_what_a_query_had_to_do_without_is_known_to_the_next(lake, monkeypatch):
    """Nobody waits for it: learning is a step of its own."""
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 1)
    lake.add([sample_row(MIDNIGHT)] * 20, is_sealed=True)
    query = parse_query({"package": ["nowhere"]})

    assert seqs(lake, query) == []
    assert lake.reader.values.at_most(lake.segments[0], query) is None
    assert lake.reader.values.is_wanting
    lake.reader.values.learn()

    assert lake.reader.values.at_most(lake.segments[0], query) == 0
    assert not lake.reader.values.is_wanting


def test_a_page_that_decoded_rows_answer_wants_nothing(lake):
    """The index is for what is rare; most pages are not."""
    lake.add([sample_row(MIDNIGHT)] * 20, is_sealed=True)

    assert seqs(lake, parse_query({"package": ["left-pad"]}), 2) == [20, 19]
    assert not lake.reader.values.is_wanting


def test_a_column_with_too_many_values_is_not_kept_nor_asked_for_again(lake, monkeypatch):
    """Ids that differ from row to row would fill the memory and rule nothing out."""
    monkeypatch.setattr(values_module, "VALUES_BYTES_MAX", 20)
    rows = [sample_row(MIDNIGHT, request_id=f"req_{number}") for number in range(20)]
    lake.add(rows, is_sealed=True)
    query = parse_query({"request_id": ["req_7"], "order": ["asc"]})
    learn(lake, "request_id")

    assert seqs(lake, query) == [8]
    assert lake.reader.values.at_most(lake.segments[0], query) == 20
    assert not lake.reader.values.is_wanting


def test_a_file_that_cannot_be_read_is_left_to_the_query_that_needs_it(lake):
    """Learning is nobody's question, so nobody is told."""
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)
    lake.segments[0].path(lake.root).write_bytes(b"PAR1 damaged PAR1")
    query = parse_query({"package": ["nowhere"]})
    learn(lake, "package_name")

    assert lake.reader.values.at_most(lake.segments[0], query) is None


def test_no_query_wants_more_than_the_cache_keeps(lake):
    """What it learns last would drive out what it has learnt first, again and again."""
    for number in range(4):
        lake.add([sample_row(MIDNIGHT - timedelta(days=number))], is_sealed=True)
    index = ValueIndex(Decoded(lake.root, 4 * values_module.VALUES_BYTES_MAX))
    query = parse_query({"package": ["nowhere"]})
    index.want(lake.segments, query)
    index.learn()

    known = [index.at_most(segment, query) for segment in lake.segments]
    assert known == [0, 0, None, None]


def test_learning_ends_when_the_index_is_closed(lake):
    """A service that stops does not wait for it."""
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)
    query = parse_query({"package": ["nowhere"]})
    lake.reader.values.close()
    learn(lake, "package_name")

    assert lake.reader.values.at_most(lake.segments[0], query) is None


@pytest.mark.parametrize(
    ("hoped", "wanted", "lengths"),
    [
        ([], 5, []),
        ([9, 9, 9], 5, [1, 2]),
        ([1, 1, 1, 1, 1, 1], 3, [3, 3]),
        ([0, 0, 5, 0], 5, [3, 1]),
        ([1] * 30, 2, [2, 8, 20]),
    ],
)
def test_hopeful_windows_hold_what_is_wanted_and_then_hope_for_more(hoped, wanted, lengths):
    """A bound is no promise: other conditions may take most of the rows away."""
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(len(hoped))]
    cut = list(hopeful_windows(days, dict(zip(days, hoped, strict=True)), wanted))

    assert [len(window) for window in cut] == lengths
    assert [day for window in cut for day in window] == days
