"""How much the tests try: a part for every commit, everything with `make test-all`."""

from typing import Final

import pytest

from tests.effort import IS_FULL

only_full: Final = pytest.mark.full
"""Marks what `make test-all` alone runs."""


def budget(part: int, everything: int) -> int:
    """How often a test is to try: `part` in `make test`, `everything` in `make test-all`."""
    return everything if IS_FULL else part
