"""The short path: the same rows as DuckDB finds, from what is kept decoded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.cache.row_groups import Decoded
from analytics.model.cursors import Position
from analytics.model.filters import Condition, Query, Term, mask, parse_query
from analytics.query.engine import Engine
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.storage import segment_writer
from analytics.storage.segment_store import LocalFolder
from tests.analytics.samples import SampleLake, sample_row, table_of
from tests.budgets import budget

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
TEXTS = ["a", "ab", "b", "", "é", "a\x00b", "%", "_"]
TERMS = st.builds(Term, st.sampled_from(TEXTS), st.booleans(), st.booleans())
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["package_name", "subject", "event"]),
    st.lists(TERMS, min_size=1, max_size=3).map(tuple),
)
INSTANTS = st.integers(0, 99).map(lambda hours: MIDNIGHT - timedelta(hours=hours))
ROW = st.builds(
    sample_row,
    INSTANTS,
    package_name=st.sampled_from([*TEXTS, None]),
    subject=st.sampled_from([*TEXTS, None]),
)


def seqs(lake: SampleLake, query: Query, limit: int, after: Position | None = None) -> list[int]:
    return lake.reader.page(lake.snapshot(), query, limit, after)["seq"].to_pylist()


@settings(max_examples=budget(40, 200))
@given(
    rows=st.lists(ROW, min_size=1, max_size=8),
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
)
def test_a_mask_says_what_a_condition_says_of_each_value(rows, conditions):
    """The Arrow form of a filter and its plain form are one rule."""
    query = Query(conditions=conditions)

    expected = [all(one.is_met(getattr(row, one.column)) for one in conditions) for row in rows]

    assert mask(query, table_of(rows)).to_pylist() == expected


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on DuckDB answers nothing."""

    def refuse(*_: object) -> None:
        raise AssertionError("DuckDB was asked")

    monkeypatch.setattr(Engine, "select", refuse)


@pytest.mark.parametrize(
    "parameters", [{}, {"package": ["left-*"]}, {"subject": ["!x"], "decision": ["BLOCKED"]}]
)
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_page_of_newest_rows_needs_no_engine(lake, no_engine, is_sealed, parameters):
    lake.add([sample_row(MIDNIGHT)] * 20, is_sealed=is_sealed)

    assert seqs(lake, parse_query(parameters), 5) == [20, 19, 18, 17, 16]
    after = Position(20, MIDNIGHT, 16)
    assert seqs(lake, parse_query(parameters), 5, after) == [15, 14, 13, 12, 11]


def test_decoded_rows_answer_without_their_file(lake, no_engine):
    """A segment never changes, so what was read once need not be read again."""
    lake.add([sample_row(MIDNIGHT)] * 3, is_sealed=True)
    first = seqs(lake, Query(), 2)
    lake.segments[0].path(lake.root).unlink()

    assert seqs(lake, Query(), 2) == first == [3, 2]


def test_a_rare_value_is_left_to_duckdb(lake, monkeypatch):
    """Scanning row group after row group would cost more than DuckDB's answer."""
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 2)
    lake.add([sample_row(MIDNIGHT - timedelta(seconds=n)) for n in range(40)], is_sealed=True)
    lake.add([sample_row(MIDNIGHT - timedelta(minutes=1), package_name="rare")], is_sealed=True)

    assert seqs(lake, parse_query({"package": ["rare"]}), 5) == [41]
    groups = lake.reader.resources.row_groups.row_groups(lake.segments[0])
    assert (
        sum(lake.reader.resources.row_groups.holds(lake.segments[0], one.index) for one in groups)
        <= 2
    )


def test_rows_that_do_not_fit_are_read_each_time(lake):
    """A bound that is too small costs time, and nothing else."""
    lake.add([sample_row(MIDNIGHT)] * 5, is_sealed=True)
    lake.add([sample_row(MIDNIGHT)] * 5, is_sealed=False)
    small = Decoded(LocalFolder(lake.root), 1)
    lake.reader = Reader(
        Planner(decoded=small),
        replace(lake.reader.resources, row_groups=small),
    )

    assert seqs(lake, Query(), 10) == list(range(10, 0, -1))
    assert lake.reader.resources.row_groups.cache.size == 0


@pytest.mark.parametrize("per_batch", [1, 100])
def test_a_newest_page_decodes_only_the_batches_that_can_hold_its_rows(lake, per_batch):
    """A journal under ingest is long, and pages show its end."""
    for number in range(40):
        at = MIDNIGHT + timedelta(minutes=number)
        lake.add([sample_row(at)] * per_batch, is_sealed=False)
    decoded = lake.reader.resources.row_groups

    rows = lake.reader.page(lake.snapshot(), Query(), 5, None)

    assert rows["seq"].to_pylist() == list(range(40 * per_batch, 40 * per_batch - 5, -1))
    seen = [batch for batch in lake.batches if ("batch", batch.first_seq) in decoded.cache]
    assert seen == lake.batches[-len(seen) :]
    assert 0 < len(seen) <= 24
    if per_batch > 1:
        assert len(seen) == 1


def test_the_journals_runs_do_not_depend_on_the_query(lake):
    for number in range(40):
        lake.add([sample_row(MIDNIGHT + timedelta(minutes=number))], is_sealed=False)
    lake.reader.page(lake.snapshot(), Query(), 1_000, None)
    size = lake.reader.resources.row_groups.cache.size
    since = parse_query({"since": [(MIDNIGHT + timedelta(minutes=20)).isoformat()]})

    rows = lake.reader.page(lake.snapshot(), since, 1_000, None)

    assert rows.num_rows == 20
    assert lake.reader.resources.row_groups.cache.size == size
