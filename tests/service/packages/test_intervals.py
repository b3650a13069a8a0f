"""The first of many sets of versions that contains a version."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.packages.intervals import (
    AFTER,
    BEFORE,
    EVERYTHING,
    FIRST,
    LAST,
    IntervalIndex,
    contains,
)

_CUTS = st.one_of(
    st.sampled_from([FIRST, LAST]),
    st.tuples(st.tuples(st.integers(0, 6)), st.sampled_from([BEFORE, AFTER])),
)
_INTERVALS = st.tuples(_CUTS, _CUTS).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.lists(_INTERVALS, max_size=3), max_size=6), st.integers(0, 6))
def test_the_first_set_is_the_first_that_contains_the_version(
    sets: list[list[Any]], version: int
) -> None:
    key = (version,)
    numbers = [number for number, intervals in enumerate(sets) if contains(intervals, key)]

    assert IntervalIndex(sets).first(key) == min(numbers, default=None)


def test_everything_is_in_one_interval() -> None:
    """Keys of both ecosystems begin with a number."""
    assert contains([EVERYTHING], (0,))
    assert IntervalIndex([[EVERYTHING]]).first((2**53,)) == 0


class CountedKey(tuple[int, ...]):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: object) -> bool:
        CountedKey.compared += 1
        return super().__lt__(other)  # type: ignore[operator]


@pytest.mark.parametrize("sets", [10, 10_000])
def test_a_look_up_compares_a_version_with_few_of_many_ranges(sets: int) -> None:
    """The logarithm of their number: a page of 1,000 files asks 1,000 times."""
    ranges = [[(((2 * each,), BEFORE), ((2 * each + 1,), BEFORE))] for each in range(sets)]
    index = IntervalIndex(ranges)
    CountedKey.compared = 0

    assert index.first(CountedKey((2 * sets - 2,))) == sets - 1
    assert CountedKey.compared <= (2 * sets).bit_length() + 1
