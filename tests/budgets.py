"""How much the tests try: a part for every commit, everything with `make test-all`."""

import os
from typing import Final

import pytest

IS_FULL: Final = os.environ.get("TESTS") == "all"

only_full: Final = pytest.mark.full
"""Marks what `make test-all` alone runs."""


def budget(part: int, everything: int) -> int:
    """How often a test is to try: `part` in `make test`, `everything` in `make test-all`."""
    return everything if IS_FULL else part
