"""What is known of a segment's values never changes an answer; it only saves the way to it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.cache import results
from analytics.cache.lru import ENTRY_BYTES
from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.filters import Condition, Order, Query, Term, parse_query
from analytics.model.rows import AuditRow
from analytics.query.day_windows import hopeful_windows
from analytics.query.engine import Engine
from analytics.query.reader import Reader
from analytics.query.summaries import TOP_PARAMETERS, Bucket, summarise
from analytics.statistics import cardinality, dictionary, top_values
from analytics.statistics import value_index as values_module
from analytics.statistics.value_index import ValueIndex
from analytics.storage import segment_writer
from analytics.storage.snapshot import Snapshot
from tests.analytics.models import counted, in_order, matching, most_frequent, of_buckets
from tests.analytics.samples import SampleLake, open_lake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
TEXTS = ["a", "ab", "abc", "b", "", "é", "a\x00b", "%", "_", "😀"]
TERMS = st.builds(Term, st.sampled_from(TEXTS), st.booleans(), st.booleans())
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["package_name", "subject", "version", "actor", "event", "decision"]),
    st.lists(TERMS, min_size=1, max_size=3).map(tuple),
)
INSTANTS = st.integers(0, 60).map(lambda hours: MIDNIGHT - timedelta(hours=hours))
ROW = st.builds(
    sample_row,
    INSTANTS,
    package_name=st.sampled_from([*TEXTS, None]),
    subject=st.sampled_from(["a", "ab", None]),
    version=st.sampled_from(["a", "b", None]),
    actor=st.sampled_from(["a", "b", "ab"]),
    event=st.sampled_from(["blocklist_hit", "a", "b"]),
    decision=st.sampled_from(["ALLOWED", "BLOCKED", "a", "", None]),
)
RUNS = st.lists(
    st.tuples(st.lists(ROW, min_size=1, max_size=10), st.booleans()), min_size=1, max_size=8
)
BOUNDS = st.none() | INSTANTS


def learn(lake: SampleLake, *columns: str) -> None:
    """Have the lake's index know these columns of every segment."""
    assert lake.reader.values is not None
    lake.reader.values.want(lake.segments, columns)
    lake.reader.values.learn()


def seqs(lake: SampleLake, query: Query, limit: int = 10) -> list[int]:
    return lake.reader.page(lake.snapshot(), query, limit)["seq"].to_pylist()


def paged(reader: Reader, snapshot: Snapshot, query: Query, limit: int) -> list[int]:
    """The seqs of all pages, one behind the other, as cursors lead through them."""
    seen: list[int] = []
    after: Position | None = None
    while rows := reader.page(snapshot, query, limit, after).to_pylist():
        assert len(rows) <= limit
        seen += [row["seq"] for row in rows]
        after = Position(snapshot.watermark, rows[-1]["created_at"], rows[-1]["seq"])
    return seen


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    runs=RUNS,
    since=BOUNDS,
    until=BOUNDS,
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    order=st.sampled_from(Order),
    limit=st.integers(1, 12),
    behind=st.integers(0, 6),
    known=st.lists(st.sampled_from(["package_name", "actor", "subject", "version"]), unique=True),
    learnt=st.integers(0, 8),
    group_rows=st.integers(1, 6),
    bounds=st.fixed_dictionaries(
        {
            cardinality: st.fixed_dictionaries({"FEW_ROWS_MAX": st.sampled_from([0, 3, 512])}),
            results: st.fixed_dictionaries({"FOUND_BYTES_MAX": st.sampled_from([0, 2**21])}),
            top_values: st.fixed_dictionaries({"BLOCK_DAYS": st.sampled_from([1, 2, 16])}),
            dictionary: st.fixed_dictionaries({"BISECTED_MAX": st.sampled_from([0, 1, 64])}),
            values_module: st.fixed_dictionaries(
                {
                    "TEXTS_BYTES_MAX": st.sampled_from([20, 2**20]),
                    "VALUES_BYTES_MAX": st.sampled_from([24, 2**20]),
                }
            ),
        }
    ),
    bucket=st.sampled_from(Bucket),
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
    bounds,
    bucket,
):
    """With all, some or no columns of some of the segments known: whatever is asked.

    And with room for all, some or none of what there is to know.
    """
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    accepted: dict[int, AuditRow] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "ROW_GROUP_ROWS", group_rows)
        for module, named in bounds.items():
            for name, value in named.items():
                patch.setattr(module, name, value)
        for number, (rows, is_sealed) in enumerate(runs):
            accepted |= lake.add(rows, is_sealed=is_sealed)
            if number == learnt:
                learn(lake, *known)
        query = Query(since, until, conditions, order)
        snapshot = replace(lake.snapshot(), watermark=max(1, lake.last_seq - behind))
        rows_in = matching(accepted, query, snapshot.watermark)
        try:
            for _ in range(3):  # and again with what the rounds before wanted to know, and found
                check_all_answers(lake.reader, snapshot, query, rows_in, limit, bucket)
                lake.reader.values.learn()
        finally:
            lake.reader.engine.close()


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
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 1)
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
    room = 4 * (ENTRY_BYTES + values_module.VALUE_BYTES)
    index = ValueIndex(Decoded(lake.root, room), room)
    query = parse_query({"package": ["nowhere"]})
    index.want(lake.segments, ["package_name"])
    index.learn()

    known = [index.at_most(segment, query) for segment in lake.segments]
    assert known == [0, 0, None, None]


def test_rows_that_are_leafed_through_do_not_drive_out_what_was_learnt(lake):
    """Who looks at old days would else make the next summary read every file."""
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)
    learn(lake, "package_name")
    rows = lake.reader.decoded.cache
    for number in range(3):
        rows.keep(number, None, rows.bytes_max)

    assert lake.reader.values.at_most(lake.segments[0], parse_query({"package": ["no"]})) == 0


def test_codes_of_a_forgotten_dictionary_say_nothing(lake):
    """The next one gives them to other texts."""
    lake.add([sample_row(MIDNIGHT, package_name="x")], is_sealed=True)
    lake.add([sample_row(MIDNIGHT, package_name="y")], is_sealed=True)
    index, query = lake.reader.values, parse_query({"package": ["x"], "order": ["asc"]})
    index.want(lake.segments[:1], ["package_name"])
    index.learn()
    assert index.at_most(lake.segments[0], query) == 1
    index.find(lake.segments[0], "package_name")
    index.cache.find(("values", lake.segments[0].segment_id, "package_name"))
    index.cache.keep("filler", None, index.cache.bytes_max - 2 * ENTRY_BYTES)  # drives it out
    index.want(lake.segments[1:], ["package_name"])
    index.cache.keep("filler", None, 0)
    index.learn()

    assert index.at_most(lake.segments[1], query) == 0
    assert index.at_most(lake.segments[0], query) is None
    assert seqs(lake, query) == [1]


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
