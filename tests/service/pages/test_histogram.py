"""Bars of a histogram: few, round, and together all there is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.filters import Query
from analytics.query.buckets import Bucket
from analytics.query.summaries import BucketCounts
from service.pages.histogram import (
    DAYS_MAX,
    LABELS_MAX,
    LABELS_MIN,
    PLOT,
    STRIP,
    bucket_of,
    draw,
    short_number,
    window_before,
)
from service.pages.state import PageState

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
        (timedelta(hours=3), Bucket.MINUTE),
        (timedelta(hours=24), Bucket.HOUR),
        (timedelta(days=7), Bucket.HOUR),
        (timedelta(days=30), Bucket.DAY),
        (timedelta(days=365), Bucket.DAY),
    ],
)
def test_a_bar_is_a_minute_an_hour_or_a_day(length, bucket):
    """Never two hours: a bar is what one says of a time."""
    query = Query(since=NOON - length, until=NOON)
    assert bucket_of(query, NOON) is bucket
    counts = [(0, 1, 0)] * round(length / bucket.length)
    shown = draw(buckets(query.since, bucket, counts), bucket, query, STATE)

    assert shown.step == bucket.length
    assert len(shown.bars) == len(counts)
    assert shown.unit == bucket.value


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

    assert 0 < len(shown.bars) <= DAYS_MAX
    assert len([*shown.labels]) <= LABELS_MAX
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
    assert 0 <= bar.allowed_height <= bar.allowed_height + bar.other_height <= PLOT + STRIP
    assert 0 <= bar.blocked_height <= STRIP


def test_blocked_rows_have_a_scale_of_their_own():
    """Ten of them fill their strip beside a million others; the day before has half as many."""
    counts = [(10**6, 5, 0), (10**6, 10, 0)]
    shown = draw(buckets(NOON, Bucket.DAY, counts), Bucket.DAY, Query(), STATE)

    assert [bar.blocked_height for bar in shown.bars] == [STRIP / 2, STRIP]
    assert (shown.most, shown.most_blocked, shown.plot) == (10**6, 10, PLOT)


@pytest.mark.parametrize(
    ("counts", "plot"), [((0, 5, 0), 0), ((5, 0, 0), PLOT + STRIP), ((0, 0, 5), PLOT + STRIP)]
)
def test_rows_of_one_kind_have_the_whole_drawing(counts, plot):
    allowed, blocked, other = counts
    shown = draw(buckets(NOON, Bucket.DAY, [(allowed, blocked, other)]), Bucket.DAY, Query(), STATE)

    assert shown.plot == plot
    (bar,) = shown.bars
    assert bar.blocked_height + bar.allowed_height + bar.other_height == PLOT + STRIP


def test_no_row_has_no_bar():
    empty = draw([], Bucket.DAY, Query(), STATE)
    assert (empty.bars, [*empty.labels]) == ([], [])
    assert draw(buckets(NOON, Bucket.DAY, [(0, 0, 0)]), Bucket.DAY, Query(), STATE).most == 0


# The axis


def labels(since: datetime, until: datetime) -> list[str]:
    """The texts below the bars of a window."""
    query = Query(since=since, until=until)
    bucket = bucket_of(query, until)
    held = -((bucket.start(since) - until) // bucket.length)
    return [
        each.text
        for each in draw(buckets(since, bucket, [(1, 0, 0)] * held), bucket, query, STATE).labels
    ]


@pytest.mark.parametrize(
    ("since", "length", "texts"),
    [
        (
            datetime(2026, 3, 4, 9, 52, tzinfo=UTC),
            timedelta(hours=1),
            ["10:00", "10:10", "10:20", "10:30", "10:40", "10:50"],
        ),
        (
            datetime(2026, 11, 23, 9, 52, tzinfo=UTC),
            timedelta(hours=24),
            ["12:00", "16:00", "20:00", "Tue 24 Nov", "04:00", "08:00"],
        ),
        (
            datetime(2026, 3, 4, 12, tzinfo=UTC),
            timedelta(hours=12),
            ["12:00", "14:00", "16:00", "18:00", "20:00", "22:00"],
        ),
        (
            datetime(2026, 3, 4, 10, tzinfo=UTC),
            timedelta(hours=48),
            ["12:00", "Thu 5 Mar", "12:00", "Fri 6 Mar"],
        ),
        (
            datetime(2026, 3, 4, 10, tzinfo=UTC),
            timedelta(days=7),
            ["Thu 5 Mar", "Sat 7 Mar", "Mon 9 Mar", "Wed 11 Mar"],
        ),
        (
            datetime(2026, 10, 25, 10, tzinfo=UTC),
            timedelta(days=30),
            ["26 Oct", "2 Nov", "9 Nov", "16 Nov", "23 Nov"],
        ),
        (
            datetime(2026, 8, 26, 10, tzinfo=UTC),
            timedelta(days=90),
            ["1 Sep", "15 Sep", "1 Oct", "15 Oct", "1 Nov", "15 Nov"],
        ),
        (
            datetime(2025, 11, 24, 10, tzinfo=UTC),
            timedelta(days=365),
            ["1 Jan", "1 Apr", "1 Jul", "1 Oct"],
        ),
        (
            datetime(2022, 11, 24, 10, tzinfo=UTC),
            timedelta(days=4 * 365),
            ["Jan 2023", "Jan 2024", "Jan 2025", "Jan 2026"],
        ),
    ],
)
def test_the_axis_is_labelled_at_natural_boundaries(since, length, texts):
    assert labels(since, since + length) == texts


@given(minutes=st.integers(30, 500_000), offset=st.integers(0, 100_000))
def test_the_axis_has_four_to_six_labels(minutes, offset):
    since = NOON - timedelta(minutes=offset)
    until = since + timedelta(minutes=minutes)
    texts = labels(since, until)
    bars = timedelta(minutes=minutes) / bucket_of(Query(since=since, until=until), until).length

    assert min(LABELS_MIN, bars // 2) <= len(texts) <= LABELS_MAX


@pytest.mark.parametrize(
    ("rows", "text"),
    [(0, "0"), (5, "5"), (2_500, "2.5k"), (40_000, "40k"), (500_000, "500k"), (2 * 10**6, "2M")],
)
def test_numbers_of_the_axis_are_short(rows, text):
    assert short_number(rows) == text


def test_the_scale_has_a_zero_and_round_numbers():
    def scale(*counts: int) -> list[tuple[float, str]]:
        return draw(buckets(NOON, Bucket.DAY, [counts]), Bucket.DAY, Query(), STATE).scale

    assert scale(30_000, 4, 0) == [
        (PLOT, "0"),
        (0, "40k"),
        (PLOT / 2, "20k"),
        (PLOT + STRIP, "4"),
    ]
    assert scale(0, 4, 0) == [(0, "0"), (PLOT + STRIP, "4")]
    assert scale(1, 0, 0) == [(PLOT + STRIP, "0"), (0, "1")]


# The window before


def test_the_window_before_is_as_long_in_whole_buckets():
    """So that each of its buckets belongs to one bar."""
    query = Query(since=NOON - timedelta(hours=24, minutes=8))
    before = window_before(query, Bucket.HOUR, NOON)

    assert before is not None
    assert (before.since, before.until) == (
        NOON - timedelta(hours=49, minutes=8),
        NOON - timedelta(hours=25),
    )
    day = Query(since=NOON - timedelta(hours=24, milliseconds=400))
    assert window_before(day, Bucket.HOUR, NOON).since == day.since - timedelta(hours=24)
    assert window_before(day, Bucket.HOUR, NOON).until == day.since
    assert window_before(Query(), Bucket.DAY, NOON) is None
    assert window_before(Query(since=NOON), Bucket.DAY, NOON) is None


def test_the_window_before_is_a_step_on_the_scale_of_the_bars():
    now, was = [(10, 0, 0), (20, 0, 0)], [(40, 2, 0), (0, 0, 0)]
    shown = draw(
        buckets(NOON, Bucket.HOUR, now),
        Bucket.HOUR,
        Query(),
        STATE,
        buckets(NOON - timedelta(hours=2), Bucket.HOUR, was),
    )

    assert [bar.before for bar in shown.bars] == [42, 0]
    assert shown.most == 40
    assert shown.before == f"M0 {PLOT + STRIP}V0h1V{PLOT + STRIP}h1"
