"""Instants: which texts name one, and which one they name."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.model.instants import (
    format_ms,
    format_us,
    midnight,
    parse_instant,
    parse_since,
    parse_until,
    utc_day,
)

EIGHT = datetime(2026, 1, 31, 8, tzinfo=UTC)
BOUNDS = pytest.mark.parametrize("parse", [parse_instant, parse_since, parse_until])


@pytest.mark.parametrize(
    ("fraction", "microseconds"),
    [("", 0), (".1", 100_000), (".123", 123_000), (".123456", 123_456), (".000001", 1)],
)
@BOUNDS
def test_a_fraction_has_up_to_six_digits(parse, fraction, microseconds):
    expected = EIGHT + timedelta(microseconds=microseconds)

    assert parse(f"2026-01-31T08:00:00{fraction}Z") == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T08:00:00Z",
        "2026-01-31T08:00:00",
        "2026-01-31t08:00:00z",
        "2026-01-31 08:00:00Z",
        "2026-01-31T08:00:00+00:00",
        "2026-01-31T08:00:00-00:00",
        "2026-01-31T10:00:00+02:00",
        "2026-01-31T10:00:00 02:00",
        "2026-01-31T02:30:00-05:30",
        "2026-02-01T07:59:00+23:59",
    ],
)
@BOUNDS
def test_an_offset_moves_the_instant_and_no_zone_means_utc(parse, text):
    instant = parse(text)

    assert instant == EIGHT
    assert instant.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "now",
            "1769846400",
            "2026-01-31\n",
            "2026-01-31Z",
            "2026-02-30",
            "２０２６-01-31",
        ),
        *("2026-01-31T08:00:00.1234567Z", "2026-01-31T08:00:00.Z", "2026-01-31T08:00:00,5Z"),
        *("2026-01-31T08:00:60Z", "2026-12-31T23:59:60Z", "2026-01-31T24:00:00Z"),
        *("2026-13-01T08:00:00Z", "2026-00-01T08:00:00Z", "2026-01-31T08:60:00Z"),
        *("2026-02-30T08:00:00Z", "2025-02-29T08:00:00Z", "0000-01-01T00:00:00Z"),
        *("2026-01-31T08:00Z", "2026-01-31T08Z", "20260131T080000Z", "2026-1-31T08:00:00Z"),
        *("2026-W05-6T08:00:00Z", "2026-01-31T08:00:00+02", "2026-01-31T08:00:00+0200"),
        *("2026-01-31T08:00:00+24:00", "2026-01-31T08:00:00+01:60", "2026-01-31T08:00:00ZZ"),
        *("2026-01-31T08:00:00Z\n", "\n2026-01-31T08:00:00Z", " 2026-01-31T08:00:00Z"),
        *("２０２６-01-31T08:00:00Z", "2026-01-31T08:00:0٠Z", "2026-01-31T08:00:00\x00Z"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
        *("-2026-01-31T08:00:00Z", "+12026-01-31T08:00:00Z"),
    ],
)
@BOUNDS
def test_anything_else_is_refused_and_never_guessed(parse, text):
    """A window that silently means another one hides rows."""
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


def test_a_bare_date_is_its_midnight_for_since_and_its_end_for_until():
    assert parse_since("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_until("2026-01-31") == datetime(2026, 2, 1, tzinfo=UTC)
    assert parse_until("2024-02-28") == datetime(2024, 2, 29, tzinfo=UTC)


def test_a_bare_date_is_no_instant():
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_instant("2026-01-31")


def test_the_last_day_ends_with_its_last_microsecond():
    """The instant after it cannot be named."""
    assert parse_since("9999-12-31") == datetime(9999, 12, 31, tzinfo=UTC)
    assert parse_until("9999-12-31") == datetime.max.replace(tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_and_a_z_survive_printing_and_parsing(instant):
    """What an entry shows can be pasted back as a bound."""
    assert parse_instant(format_us(instant)) == instant


@given(st.datetimes(timezones=st.just(UTC)))
def test_milliseconds_are_cut_and_never_rounded_up(instant):
    """A printed instant never lies after the one it stands for."""
    printed = parse_instant(format_ms(instant))

    assert timedelta(0) <= instant - printed < timedelta(milliseconds=1)


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail_otherwise_than_by_refusing(text):
    """Any other error would be a 500."""
    for parse in (parse_instant, parse_since, parse_until):
        try:
            assert parse(text).tzinfo is UTC
        except ValueError:
            continue


def test_a_row_belongs_to_the_utc_day_of_its_instant_whatever_its_offset():
    """Days are partitions: one instant must never have two."""
    late = datetime.fromisoformat("2026-03-04T23:30:00-01:00")

    assert utc_day(late) == date(2026, 3, 5)
    assert midnight(date(2026, 3, 5)) == datetime(2026, 3, 5, tzinfo=UTC)
