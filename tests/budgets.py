"""How much the tests try: a part for every commit, everything with `make test-all`."""

from typing import Final, TypeVar

import pytest

from tests.tiers import IS_FULL

_Number = TypeVar("_Number", int, float)

only_full: Final = pytest.mark.full
"""Marks what `make test-all` alone runs."""


def budget(part: _Number, everything: _Number) -> _Number:
    """How often, how much or how long a test tries: `part` in `make test`, else `everything`."""
    return everything if IS_FULL else part


def sample(cases: int) -> pytest.MarkDecorator:
    """Marks a test of which `make test` tries so many of its cases, evenly spread over them."""
    return pytest.mark.sample(cases)


def tried_cases(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Those of a test's `cases` that `make test` runs."""
    partly = [case for case in cases if not case.get_closest_marker("full")]
    mark = cases[0].get_closest_marker("sample")
    if mark is None or len(partly) <= mark.args[0]:
        return partly
    last = max(1, mark.args[0] - 1)
    return [partly[number * (len(partly) - 1) // last] for number in range(mark.args[0])]
