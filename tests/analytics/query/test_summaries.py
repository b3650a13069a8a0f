"""Summaries: whatever is counted from the catalog equals what is counted row by row."""

from datetime import UTC, datetime, timedelta

import pytest

from analytics.model.errors import StoreFault
from analytics.model.filters import InvalidQuery, parse_query
from analytics.query.summaries import (
    BUCKETS_MAX,
    TOP_PARAMETERS,
    Bucket,
    Summary,
    summarise,
)
from tests.analytics.samples import SampleLake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def summary(lake: SampleLake, bucket: str = "day", **parameters: str) -> Summary:
    query = parse_query({name: [value] for name, value in parameters.items()})
    return summarise(lake.reader, lake.snapshot(), query, None, Bucket(bucket))


def starts(found: Summary) -> list[datetime]:
    return [bucket.start for bucket in found.buckets]


def test_buckets_have_no_gaps_and_end_with_the_rows(lake):
    """A chart needs no arithmetic, and shows no empty year before the first row."""
    lake.add([sample_row(MIDNIGHT), sample_row(MIDNIGHT + 3 * DAY)], is_sealed=True)

    found = summary(lake)

    assert starts(found) == [MIDNIGHT + n * DAY for n in range(4)]
    assert [one.blocked for one in found.buckets] == [1, 0, 0, 1]


def test_buckets_fill_the_window_that_was_asked_for(lake):
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)

    found = summary(lake, since="2026-03-02T13:00:00Z", until="2026-03-05")
    in_hours = summary(lake, "hour", since="2026-03-04T22:30:00Z", until="2026-03-05T01:00:00Z")

    assert starts(found) == [MIDNIGHT + n * DAY for n in (-2, -1, 0, 1)]
    assert starts(in_hours) == [MIDNIGHT + n * HOUR for n in (22, 23, 24)]
    assert in_hours.total == 0


def test_no_rows_and_no_window_is_no_bucket(lake):
    assert summary(lake) == Summary(0, [], {name: [] for name in TOP_PARAMETERS})


@pytest.mark.parametrize(
    ("package", "days_shown"), [("nowhere", 0), ("left-pad", 1)], ids=["none", "one of three days"]
)
def test_what_is_known_of_files_shows_no_bucket_more(lake, package, days_shown):
    for day, name in enumerate(["other", "left-pad", "other"]):
        lake.add([sample_row(MIDNIGHT + day * DAY, package_name=name)], is_sealed=True)
    first = summary(lake, package=package)
    for segment in lake.segments:
        segment.index_path(lake.root).unlink()

    assert summary(lake, package=package) == first
    assert len(first.buckets) == days_shown


def test_nothing_before_the_floor_is_counted_or_shown(lake):
    lake.add([sample_row(MIDNIGHT), sample_row(MIDNIGHT + HOUR)], is_sealed=True)
    floor = MIDNIGHT + HOUR
    asked = parse_query({"since": ["2000-01-01"], "until": ["2026-03-05"]})

    found = summarise(lake.reader, lake.snapshot(), asked, floor, Bucket.DAY)
    over = parse_query({"since": ["2000-01-01"], "until": ["2000-01-02"]})
    before = summarise(lake.reader, lake.snapshot(), over, floor, Bucket.DAY)

    assert found.total == 1
    assert starts(found) == [MIDNIGHT, MIDNIGHT + DAY]
    assert before.total == 0
    assert before.buckets == []


@pytest.mark.parametrize("hours", [BUCKETS_MAX, BUCKETS_MAX + 1])
def test_there_are_at_most_so_many_buckets(lake, hours):
    """A year of hours fits; a century of them would be too long to draw."""
    bounds = {
        "since": MIDNIGHT.isoformat(),
        "until": (MIDNIGHT + hours * HOUR).isoformat(),
    }

    if hours <= BUCKETS_MAX:
        assert len(summary(lake, "hour", **bounds).buckets) == hours
    else:
        with pytest.raises(InvalidQuery, match="more than 10000 buckets"):
            summary(lake, "hour", **bounds)


def test_rows_far_apart_are_too_many_buckets_as_well(lake):
    lake.add([sample_row(MIDNIGHT), sample_row(MIDNIGHT + 500 * DAY)], is_sealed=True)

    with pytest.raises(InvalidQuery, match="more than 10000 buckets"):
        summary(lake, "hour")
    assert len(summary(lake, "day").buckets) == 501


@pytest.mark.parametrize("is_sealed", [True, False])
def test_instants_before_1970_and_at_the_ends_of_time_have_their_bucket(lake, is_sealed):
    """Division rounds down, not towards the epoch."""
    lake.add([sample_row(datetime(1969, 12, 31, 23, 30, tzinfo=UTC))], is_sealed=is_sealed)

    assert starts(summary(lake, "hour")) == [datetime(1969, 12, 31, 23, tzinfo=UTC)]
    assert starts(summary(lake, until="9999-12-30", since="9999-12-30"))
    assert starts(summary(lake, "hour", package="!x")) == starts(summary(lake, "hour"))


def test_equal_counts_are_in_the_order_of_their_values(lake):
    """By code points, so that two runs never differ."""
    for name in ("é", "b", "a", "😀", "Z"):
        lake.add([sample_row(MIDNIGHT, package_name=name)], is_sealed=True)

    assert [one.value for one in summary(lake).top["package"]] == ["Z", "a", "b", "é", "😀"]


def test_ten_values_at_most_and_those_without_one_left_out(lake):
    """Null is no package."""
    names = [f"p{n:02}" for n in range(12)]
    lake.add([sample_row(MIDNIGHT, package_name=name) for name in names], is_sealed=True)
    lake.add([sample_row(MIDNIGHT, package_name=None)] * 5, is_sealed=False)

    assert [one.value for one in summary(lake).top["package"]] == names[:10]


def test_whole_days_are_counted_without_a_look_at_decision_or_event(lake, asked):
    lake.add([sample_row(MIDNIGHT), sample_row(MIDNIGHT + HOUR)], is_sealed=True)
    for parameters in ({}, {"decision": "BLOCKED"}, {"since": "2026-03-04", "until": "2026-03-04"}):
        asked.clear()
        assert summary(lake, **parameters).total == 2
        assert asked == []
    asked.clear()
    assert summary(lake, since="2026-03-04T00:30:00Z").total == 1
    assert len(asked) == 2


def test_a_file_that_cannot_be_read_is_a_fault(lake):
    """Never a chart with a hole in it."""
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)
    lake.segments[0].path(lake.root).unlink()
    lake.segments[0].index_path(lake.root).unlink()

    with pytest.raises(StoreFault):
        summary(lake)


def test_the_most_frequent_values_are_those_of_the_window(lake):
    """An index counts all rows of its segment."""
    rows = [sample_row(MIDNIGHT, package_name="old")] * 3
    lake.add([*rows, sample_row(MIDNIGHT + HOUR, package_name="new")], is_sealed=True)

    top = summary(lake, since="2026-03-04T00:30:00Z").top["package"]
    assert [(one.value, one.count) for one in top] == [("new", 1)]
