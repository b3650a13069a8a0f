"""How large each part of the run is: the real run, and one that shows that it works."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Size:
    """The sizes of one run."""

    is_quick: bool
    rows: int
    """Of the tenant that is asked."""

    rounds: int
    """Requests behind each figure of a page."""

    cold_rounds: int
    """Servers with an empty cache that are asked for each window."""

    ingest_s: float
    """How long rows are sent in each setting."""

    files: tuple[int, ...]
    """In a table, before one more is published."""


REAL: Final = Size(
    is_quick=False,
    rows=800_000,
    rounds=600,
    cold_rounds=3,
    ingest_s=5.0,
    files=(100, 10_000, 100_000),
)
QUICK: Final = Size(
    is_quick=True, rows=9_000, rounds=60, cold_rounds=1, ingest_s=0.6, files=(100, 1_000)
)
