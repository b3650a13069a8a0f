"""Bars of a histogram: few, round, and together all there is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.filters import Query
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts
from service.pages.state import PageState
from service.pages.summary_panel import BARS_MAX, HEIGHT, bucket_of, draw

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
STATE = PageState({})


def buckets(since: datetime, bucket: Bucket, counts: list[tuple[int, int, int]]):
    """Buckets one after the other, with these counts."""
    return [
        BucketCounts(bucket.start(since) + number * bucket.length, *three)
        for number, three in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("length", "bucket"),
    [
        (timedelta(hours=1), Bucket.MINUTE),
        (timedelta(hours=24), Bucket.HOUR),
        (timedelta(days=7), Bucket.HOUR),
        (timedelta(days=90), Bucket.DAY),
        (timedelta(days=365), Bucket.DAY),
    ],
)
def test_a_window_is_counted_in_the_longest_buckets_that_its_bars_are_made_of(length, bucket):
    """A year of minutes would be refused, and an hour of days would be one bar."""
    assert bucket_of(Query(since=NOON - length), NOON) is bucket


def test_without_a_beginning_days_are_counted():
    """Its length is unknown until it is counted."""
    assert bucket_of(Query(), NOON) is Bucket.DAY


@given(
    minutes=st.integers(1, 5_000_000),
    offset=st.integers(0, 100_000),
    place=st.integers(0, 2**31),
)
def test_every_window_has_few_bars_and_none_of_its_rows_is_lost(minutes, offset, place):
    since = NOON - timedelta(minutes=offset)
    query = Query(since=since, until=since + timedelta(minutes=minutes))
    bucket = bucket_of(query, NOON)
    held = (bucket.start(query.until - timedelta(microseconds=1)) - bucket.start(since)) // (
        bucket.length
    ) + 1
    counts = [(0, 0, 0)] * held
    counts[place % held] = (5, 3, 1)
    shown = draw(buckets(since, bucket, counts), bucket, query, STATE)

    assert 0 < len(shown.bars) <= BARS_MAX
    assert sum(bar.total for bar in shown.bars) == 9
    assert (shown.most, shown.most_blocked) == (10, 4)
    assert shown.bars[0].start >= since
    assert shown.bars[-1].until <= query.until
    assert all(a.until == b.start for a, b in zip(shown.bars, shown.bars[1:], strict=False))


@given(st.tuples(*[st.integers(0, 10**9)] * 3))
def test_a_part_that_is_there_is_seen_and_none_is_drawn_outside(counts):
    """A few rows beside a bar of a billion are what an investigation is about."""
    shown = draw(buckets(NOON, Bucket.DAY, [counts, (10**9, 10**9, 0)]), Bucket.DAY, Query(), STATE)
    allowed, blocked, other = counts
    bar = shown.bars[0]

    assert bool(bar.allowed_height) == bool(allowed)
    assert bool(bar.blocked_height) == bool(blocked)
    assert bool(bar.allowed_height + bar.other_height) == bool(allowed + other)
    assert 0 <= bar.allowed_height <= bar.allowed_height + bar.other_height <= HEIGHT
    assert 0 <= bar.blocked_height <= HEIGHT


def test_blocked_rows_have_a_scale_of_their_own():
    """Ten of them fill their strip beside a million others; the day before has half as many."""
    counts = [(10**6, 5, 0), (10**6, 10, 0)]
    shown = draw(buckets(NOON, Bucket.DAY, counts), Bucket.DAY, Query(), STATE)

    assert [bar.blocked_height for bar in shown.bars] == [HEIGHT // 2, HEIGHT]
    assert (shown.most, shown.most_blocked) == (10**6, 10)


def test_no_row_has_no_bar():
    assert draw([], Bucket.DAY, Query(), STATE).bars == []
    assert draw(buckets(NOON, Bucket.DAY, [(0, 0, 0)]), Bucket.DAY, Query(), STATE).most == 0
