"""Totals: what each segment's values come to together, and the most frequent of them."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.filters import parse_query
from analytics.query.summaries import TOP_PARAMETERS, Bucket, summarise
from analytics.statistics import cardinality
from analytics.statistics.top_values import NOTHING, Totals
from tests.analytics.samples import SampleLake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
COUNTS = st.dictionaries(st.sampled_from(["Z", "a", "b", "c", "", "é", "😀"]), st.integers(0, 3))


def as_totals(counts: dict[str, int]) -> Totals:
    return Totals(pa.array(counts.keys(), pa.string()), pa.array(counts.values(), pa.int64()))


@given(counts=COUNTS, others=COUNTS, number=st.integers(1, 8))
def test_the_top_is_that_of_all_rows_together(counts, others, number):
    """Of equals, those come first that sort first by code points, also at the cut."""
    more = as_totals(others)
    together = Counter(counts) + Counter(others)
    ranked = sorted((-rows, value) for value, rows in together.items() if value)

    found = as_totals(counts).plus(more.texts, more.counts).top(number)

    assert found == [(value, -rows) for rows, value in ranked[:number]]


def test_nothing_has_no_top():
    """An organisation without rows."""
    assert NOTHING.top(10) == []


def days(lake: SampleLake, number: int) -> None:
    """So many days, the package of each named after it, besides one of every day."""
    for day in range(number):
        at = MIDNIGHT - timedelta(days=day)
        decided = "ALLOWED" if day % 2 else "BLOCKED"
        rows = [sample_row(at, package_name=name, decision=decided) for name in ("all", f"p{day}")]
        lake.add([*rows, sample_row(at, package_name=None, decision=decided)], is_sealed=True)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"decision": ["BLOCKED"]},
        {"since": ["2026-02-20"], "until": ["2026-03-02"]},
        {"event": ["blocklist_hit"], "decision": ["!ALLOWED"]},
    ],
)
def test_the_second_summary_of_whole_days_opens_no_file(lake, asked, parameters):
    """The first lets the index learn what it had to read."""
    days(lake, 20)
    query = parse_query(parameters)
    first = summarise(lake.reader, lake.snapshot(), query, None, Bucket.DAY)
    lake.reader.values.learn()
    asked.clear()
    second = summarise(lake.reader, lake.snapshot(), query, None, Bucket.DAY)

    assert second == first
    assert second.total > 0
    assert asked == []


def test_of_a_frequent_package_only_the_actors_are_read(lake, asked, monkeypatch):
    """Which rows are counted together with which is known of events and decisions alone."""
    monkeypatch.setattr(cardinality, "FEW_ROWS_MAX", 3)
    days(lake, 20)
    query = parse_query({"package": ["all", "p1*"]})
    first = summarise(lake.reader, lake.snapshot(), query, None, Bucket.DAY)
    lake.reader.values.learn()
    asked.clear()
    second = summarise(lake.reader, lake.snapshot(), query, None, Bucket.DAY)

    assert second == first
    assert ["SELECT actor AS value" in sql for sql in asked] == [True]


def test_what_is_known_of_a_file_counts_only_if_all_of_it_is_asked_for(lake):
    """A bound within its day, or a watermark below its last row: then its rows are looked at."""
    lake.add([sample_row(MIDNIGHT), sample_row(MIDNIGHT + timedelta(hours=2))], is_sealed=True)
    whole = lake.snapshot()
    cut = parse_query({"since": ["2026-03-04T01:00:00Z"]})
    for query, snapshot in [(cut, whole), (parse_query({}), replace(whole, watermark=1))]:
        for _ in range(2):
            found = summarise(lake.reader, snapshot, query, None, Bucket.DAY)
            assert found.total == 1
            assert {name: [one.count for one in top] for name, top in found.top.items()} == {
                name: [1] for name in TOP_PARAMETERS
            }
            summarise(lake.reader, whole, parse_query({}), None, Bucket.DAY)
            lake.reader.values.learn()


def test_a_new_segment_is_added_to_what_is_known(lake, asked):
    """Of the newest day alone is anything read or added up."""
    days(lake, 3)
    summarise(lake.reader, lake.snapshot(), parse_query({}), None, Bucket.DAY)
    lake.reader.values.learn()
    lake.add([sample_row(MIDNIGHT + timedelta(hours=1), package_name="p0")] * 9, is_sealed=True)
    for segment in lake.segments[:-1]:
        segment.path(lake.root).unlink()

    found = summarise(lake.reader, lake.snapshot(), parse_query({}), None, Bucket.DAY)

    assert [(one.value, one.count) for one in found.top["package"]] == [
        ("p0", 10),
        ("all", 3),
        ("p1", 1),
        ("p2", 1),
    ]
