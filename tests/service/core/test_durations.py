"""Lengths of time as people type them."""

from datetime import timedelta

import pytest

from service.core.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("0m", timedelta(0)),
        ("024h", timedelta(days=1)),
        ("7d", timedelta(days=7)),
        ("99999w", timedelta(weeks=99_999)),
    ],
)
def test_digits_and_a_unit_are_a_length(text: str, length: timedelta) -> None:
    assert parse_duration(text, "smhdw", digits_max=5) == length


@pytest.mark.parametrize(
    "text", ["", "h", "24", "-1h", "1.5h", "24H", "1h ", "1h\n", "١h", "1h30m"]
)
def test_any_other_text_is_none(text: str) -> None:
    assert parse_duration(text, "smhdw", digits_max=5) is None


def test_each_place_says_which_units_and_how_many_digits_it_takes() -> None:
    assert parse_duration("5m", "hd", digits_max=5) is None
    assert parse_duration("100000h", "hd", digits_max=5) is None
