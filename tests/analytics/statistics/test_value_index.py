"""Indexes never change an answer, whole or damaged; they only save the way to it."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.cache import results
from analytics.model.filters import Condition, Order, Query, Term, parse_query
from analytics.model.rows import AuditRow
from analytics.query import planner
from analytics.query.buckets import Bucket
from analytics.query.engine import Engine
from analytics.statistics import top_values
from analytics.statistics.value_index import ValueIndex
from analytics.storage import index_blocks, index_builder, segment_writer
from analytics.storage.reindex import reindex
from analytics.storage.segment_index import INDEXED_COLUMNS
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder
from tests.analytics.forced import KINDS, forced
from tests.analytics.index_version_2 import write_version_2
from tests.analytics.models import check_all_answers, matching
from tests.analytics.samples import (
    SampleLake,
    open_lake,
    sample_row,
    sealed,
    sealed_by_version_1,
)
from tests.budgets import budget

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


def remove_index(lake: SampleLake, segment: Segment) -> None:
    segment.index_path(lake.root).unlink()


def cut_off(lake: SampleLake, segment: Segment) -> None:
    path = segment.index_path(lake.root)
    path.write_bytes(path.read_bytes()[:-3])


def flip_a_bit(lake: SampleLake, segment: Segment) -> None:
    path = segment.index_path(lake.root)
    content = bytearray(path.read_bytes())
    content[segment.rows * 7919 % len(content)] ^= 4
    path.write_bytes(content)


def take_anothers(lake: SampleLake, segment: Segment) -> None:
    other = lake.segments[(lake.segments.index(segment) + 1) % len(lake.segments)]
    if other is segment or not other.index_path(lake.root).exists():
        remove_index(lake, segment)
    else:
        segment.index_path(lake.root).write_bytes(other.index_path(lake.root).read_bytes())


def of_another_version(lake: SampleLake, segment: Segment) -> None:
    path = segment.index_path(lake.root)
    content = bytearray(path.read_bytes())
    content[4:6] = (0).to_bytes(2, "little")
    path.write_bytes(content)


def of_version_2(lake: SampleLake, segment: Segment) -> None:
    """No damage: it is read."""
    write_version_2(lake.root, segment, block_lines=3)


DAMAGES = [remove_index, cut_off, flip_a_bit, take_anothers, of_another_version]


def seqs(lake: SampleLake, query: Query, limit: int = 10) -> list[int]:
    return lake.reader.page(lake.snapshot(), query, limit)["seq"].to_pylist()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=budget(3, 60))
@given(
    runs=RUNS,
    since=BOUNDS,
    until=BOUNDS,
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    order=st.sampled_from(Order),
    limit=st.integers(1, 12),
    behind=st.integers(0, 6),
    damages=st.lists(st.none() | st.sampled_from([*DAMAGES, of_version_2]), min_size=8, max_size=8),
    kind=st.none() | st.sampled_from(KINDS),
    group_rows=st.integers(1, 6),
    few=st.sampled_from([0, 3, 512]),
    heads=st.sampled_from([1, 2, 32]),
    block_lines=st.sampled_from([1, 3, 2_048]),
    split_lines=st.sampled_from([2, 64]),
    kept=st.sampled_from([0, 2**21]),
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
    damages,
    kind,
    group_rows,
    few,
    heads,
    block_lines,
    split_lines,
    kept,
    bucket,
):
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    accepted: dict[int, AuditRow] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "ROW_GROUP_ROWS", group_rows)
        patch.setattr(planner, "FEW_ROWS_MAX", few)
        patch.setattr(index_builder, "HEAD_VALUES", heads)
        patch.setattr(index_blocks, "BLOCK_LINES", block_lines)
        patch.setattr(index_blocks, "SPLIT_LINES", split_lines)
        patch.setattr(results, "RESULT_BYTES_MAX", kept)
        for rows, is_sealed in runs:
            accepted |= lake.add(rows, is_sealed=is_sealed)
        for segment, damage in zip(lake.segments, damages, strict=False):
            if damage is not None:
                damage(lake, segment)
        query = Query(since, until, conditions, order)
        snapshot = replace(lake.snapshot(), watermark=max(1, lake.last_seq - behind))
        rows_in = matching(accepted, query, snapshot.watermark)
        try:
            reader = lake.reader if kind is None else forced(lake.reader, kind)
            for _ in range(2):  # and again with what the first round has kept
                check_all_answers(reader, snapshot, query, rows_in, limit, bucket)
        finally:
            lake.reader.resources.engine.close()


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch):
    """Call it, and from then on DuckDB answers nothing."""

    def refuse(*_: object) -> None:
        raise AssertionError("DuckDB was asked")

    return lambda: monkeypatch.setattr(Engine, "select", refuse)


@pytest.mark.parametrize("order", ["desc", "asc"])
def test_a_value_that_is_nowhere_opens_no_file(lake, no_engine, order):
    """The index was written with the segment."""
    for days in range(5):
        lake.add([sample_row(MIDNIGHT - timedelta(days=days))] * 3, is_sealed=True)
    query = parse_query({"package": ["nowhere", "no*"], "actor": ["key_1"], "order": [order]})
    no_engine()
    for segment in lake.segments:
        segment.path(lake.root).unlink()

    assert seqs(lake, query) == []
    assert list(lake.reader.stream(lake.snapshot(), query)) == []


def test_only_files_that_hold_a_rare_value_are_opened(lake, asked):
    for days in range(30):
        name = "rare" if days in {3, 29} else "common"
        lake.add([sample_row(MIDNIGHT - timedelta(days=days), package_name=name)], is_sealed=True)
    for segment in lake.segments:
        if (lake.segments[0].day - segment.day).days not in {3, 29}:
            segment.path(lake.root).unlink()

    assert seqs(lake, parse_query({"package": ["rare"], "order": ["asc"]})) == [30, 4]
    assert len(asked) == 1
    assert seqs(lake, parse_query({"package": ["rare"]})) == [4, 30]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_reported_and_rebuilt(lake, damage):
    for name in ("left", "right"):
        lake.add([sample_row(MIDNIGHT, package_name=name)] * 3, is_sealed=True)
    segment, index = lake.segments[0], lake.reader.planner.index
    query = parse_query({"package": ["left"]})
    damage(lake, segment)

    assert seqs(lake, query) == [3, 2, 1]
    terms = (Term("x", is_prefix=False, is_negated=True),)
    counts = [index.count(segment, Condition(column, terms)) for column in INDEXED_COLUMNS]
    assert None in counts
    assert index.take_damaged() == [segment]
    assert index.take_damaged() == []
    reindex(lake.root, segment)
    assert index.count(segment, query.conditions[0]).rows == (3,)
    assert index.take_damaged() == []


def test_no_damage_makes_one_version_of_another(lake):
    """They are one bit apart, and a filter that is missing would say nothing."""
    lake.add([sample_row(MIDNIGHT, package_name="a")], is_sealed=True)
    (segment,) = lake.segments
    path, condition = segment.index_path(lake.root), parse_query({"package": ["a"]}).conditions[0]
    for write in (lambda: None, lambda: write_version_2(lake.root, segment)):
        write()
        content = path.read_bytes()
        assert ValueIndex(LocalFolder(lake.root), 2**20).count(segment, condition).rows == (1,)
        path.write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])
        assert ValueIndex(LocalFolder(lake.root), 2**20).count(segment, condition) is None
        path.write_bytes(content)


@pytest.mark.parametrize("write", [lambda *_: None, write_version_2])
@pytest.mark.parametrize("number", [1, 63, 64, 127, 128, 2_049, 5_000])
def test_values_are_found_in_blocks_of_any_length(lake, number, write):
    names = [f"p{n:05}" for n in range(number)]
    lake.add([sample_row(MIDNIGHT, package_name=name) for name in names], is_sealed=True)
    (segment,) = lake.segments
    write(lake.root, segment)
    index = ValueIndex(LocalFolder(lake.root), 2**20)

    def rows(text: str, *, is_prefix: bool = False) -> int:
        counts = index.count(segment, Condition("package_name", (Term(text, is_prefix, False),)))
        return sum(counts.rows)

    some = names[:: max(1, number // 50)]
    assert [rows(name) for name in some] == [1] * len(some)
    assert [rows(f"q{n}") for n in range(100)] == [0] * 100
    assert rows("p", is_prefix=True) == number
    assert rows("p0000", is_prefix=True) == min(number, 10)
    assert index.all_values(segment, "package_name", ()) == dict.fromkeys(names, 1)


def test_a_value_that_the_filter_excludes_opens_no_index(lake):
    lake.add([sample_row(MIDNIGHT, package_name="a")], is_sealed=True)
    (segment,), index = lake.segments, lake.reader.planner.index
    assert index.column(segment, "package_name").filter
    segment.index_path(lake.root).unlink()

    names = [f"other-{number}" for number in range(200)]
    conditions = [Condition("package_name", (Term(name, False, False),)) for name in names]
    told = [index.count(segment, condition) for condition in conditions]
    assert sum(counts is not None for counts in told) > 180
    assert {(counts.rows, counts.groups) for counts in told if counts is not None} == {((0,), 0)}


def test_a_frequent_value_is_looked_up_where_no_head_names_it(lake, monkeypatch):
    monkeypatch.setattr(index_builder, "HEAD_VALUES", 1)
    monkeypatch.setattr(index_builder, "HEAD_ROWS_MIN", 1)
    monkeypatch.setattr(top_values, "SHORT_LINES_MAX", 0)
    for days, names in enumerate(["aaaaaaaaab", "abb"]):
        at = MIDNIGHT - timedelta(days=days)
        lake.add([sample_row(at, package_name=name) for name in names], is_sealed=True)
    for segment in lake.segments:
        segment.path(lake.root).unlink()

    assert lake.reader.count_values(lake.snapshot(), Query(), "package_name", 1) == [("a", 10)]


@pytest.mark.parametrize("start", [0, 1, 3])
def test_lines_are_encoded_from_where_they_begin(start):
    """A table may be a slice of another one."""
    lines = [
        {"value": f"v{number}", "kind": number % 3, "bit": 1 << number, "rows": number + 1}
        for number in range(6)
    ]
    schema = index_blocks.LINE_SCHEMA
    part = pa.Table.from_pylist(lines, schema).slice(start)

    alone = pa.Table.from_pylist(lines[start:], schema)
    assert index_blocks.encode_blocks(part, 3, 0) == index_blocks.encode_blocks(alone, 3, 0)


def test_hours_need_no_row(lake, no_engine):
    for day in range(3):
        lake.add(
            [
                sample_row(MIDNIGHT - timedelta(days=day, hours=-hour), decision=decision)
                for hour in (0, 5, 5, 23)
                for decision in ("ALLOWED", "BLOCKED", None)
            ],
            is_sealed=True,
        )
    expected = {
        (MIDNIGHT - timedelta(days=day, hours=-hour), decision): rows
        for day in range(3)
        for hour, rows in ((0, 1), (5, 2), (23, 1))
        for decision in ("ALLOWED", "BLOCKED", "")
    }
    since = MIDNIGHT - timedelta(days=1, hours=-1)
    cut = lake.reader.count_over_time(lake.snapshot(), Query(since), Bucket.HOUR)
    assert cut == {key: rows for key, rows in expected.items() if key[0] >= since}
    no_engine()
    for segment in lake.segments:
        segment.path(lake.root).unlink()

    assert lake.reader.count_over_time(lake.snapshot(), Query(), Bucket.HOUR) == expected
    blocked = parse_query({"decision": ["BLOCKED"], "event": ["blocklist_hit"]})
    assert lake.reader.count_over_time(lake.snapshot(), blocked, Bucket.HOUR) == {
        key: rows for key, rows in expected.items() if key[1] == "BLOCKED"
    }


def test_a_column_that_came_later_needs_no_new_index(lake, monkeypatch):
    """All rows of an older segment are null there."""
    with monkeypatch.context() as patch:
        columns = tuple(name for name in INDEXED_COLUMNS if name != "file_sha256")
        patch.setattr(index_builder, "INDEXED_COLUMNS", columns)
        new = sealed(lake.root, "seg_new", [sample_row(MIDNIGHT)] * 3)
        old = sealed(lake.root, "seg_old", [sample_row(MIDNIGHT)] * 3, 4)
        old = sealed_by_version_1(lake.root, old)
    index = lake.reader.planner.index
    is_it, is_not = (
        Condition("file_sha256", (Term("0" * 64, is_prefix=False, is_negated=is_negated),))
        for is_negated in (False, True)
    )

    assert index.count(new, is_it) is None
    assert (index.count(old, is_it).rows, index.count(old, is_it).groups) == ((0,), 0)
    assert index.count(old, is_not).rows == (3,)
    assert index.column(old, "file_sha256").nulls == (3,)


def test_an_index_that_was_rebuilt_is_read_again(lake):
    lake.add([sample_row(MIDNIGHT, package_name="a")] * 3, is_sealed=True)
    (segment,), index = lake.segments, lake.reader.planner.index
    condition = Condition("package_name", (Term("a", is_prefix=False, is_negated=False),))
    assert index.count(segment, condition).rows == (3,)
    content = segment.index_path(lake.root).read_bytes()
    other = ValueIndex(LocalFolder(lake.root), 2**20)
    segment.index_path(lake.root).write_bytes(content[:20] + b"x" + content[21:])
    assert other.count(segment, condition) is None
    segment.index_path(lake.root).write_bytes(content)

    assert other.count(segment, condition).rows == (3,)
    assert index.count(segment, condition).rows == (3,)


@pytest.mark.parametrize("write", [lambda *_: None, write_version_2])
def test_no_flipped_cut_or_added_byte_changes_an_answer(lake, write):
    names = [f"p{number % 90:03}" for number in range(300)]
    lake.add([sample_row(MIDNIGHT, package_name=name) for name in names], is_sealed=True)
    (segment,) = lake.segments
    write(lake.root, segment)
    path, content = segment.index_path(lake.root), segment.index_path(lake.root).read_bytes()
    conditions = parse_query({"package": ["p00*"], "actor": ["!x"]}).conditions

    def answers() -> list[object]:
        index = ValueIndex(LocalFolder(lake.root), 0)
        counts = [index.count(segment, condition) for condition in conditions]
        return [*counts, index.count_all(segment), index.all_values(segment, "package_name", ())]

    whole = answers()
    assert None not in whole
    chance = random.Random(1)
    for number in range(budget(300, 3_000)):
        damaged = bytearray(content)
        for _ in range(chance.choice([0, 1, 1, 4])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        del damaged[chance.choice([len(damaged), chance.randrange(len(damaged))]) :]
        path.write_bytes(damaged + chance.randbytes(chance.choice([0, 0, 99])))

        answered = zip(answers(), whole, strict=True)
        assert all(answer in (right, None) for answer, right in answered), number


def test_an_index_that_cannot_be_read_says_nothing(lake):
    lake.add([sample_row(MIDNIGHT, package_name="a")], is_sealed=True)
    (segment,) = lake.segments
    path, condition = segment.index_path(lake.root), parse_query({"package": ["a*"]}).conditions[0]
    path.unlink()
    path.mkdir()  # it can be opened, and each read fails
    index = ValueIndex(LocalFolder(lake.root), 2**20)

    assert index.count(segment, condition) is None
    assert index.take_damaged() == [segment]


def test_a_column_whose_values_differ_from_row_to_row_is_not_indexed(lake, monkeypatch):
    """Its index would be as large as the rows; they are read instead."""
    monkeypatch.setattr(index_builder, "INDEX_BYTES_MIN", 10)
    monkeypatch.setattr(index_builder, "COLUMN_PART_MAX", 0.05)
    rows = [sample_row(MIDNIGHT, subject=f"{number * 7919:x}") for number in range(1_000)]
    lake.add(rows, is_sealed=True)
    query = parse_query({"subject": [f"{7 * 7919:x}"], "order": ["asc"]})

    assert lake.reader.planner.index.count(lake.segments[0], query.conditions[0]) is None
    assert lake.reader.planner.index.take_damaged() == []
    assert seqs(lake, query) == [8]


def test_a_value_too_long_for_the_format_is_found_all_the_same(lake, monkeypatch):
    monkeypatch.setattr(index_builder, "VALUE_BYTES_MAX", 3)
    lake.add([sample_row(MIDNIGHT, subject="long", package_name="abc")], is_sealed=True)

    assert seqs(lake, parse_query({"subject": ["long"]})) == [1]
    assert seqs(lake, parse_query({"package": ["abc"]})) == [1]


def test_row_groups_share_bits_where_there_are_many(lake, monkeypatch):
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 1)
    names = [f"p{number}" for number in range(200)]
    rows = [
        sample_row(MIDNIGHT + timedelta(hours=1, seconds=-number), package_name=name)
        for number, name in enumerate(names)
    ]
    lake.add(rows, is_sealed=True)
    index, (segment,) = lake.reader.planner.index, lake.segments
    for number, name in enumerate(names):
        condition = Condition("package_name", (Term(name, is_prefix=False, is_negated=False),))
        counts = index.count(segment, condition)
        holders = [group for group in range(200) if counts.may_be_in(group)]
        assert number in holders
        assert len(holders) <= 4
