"""The clock, as an argument: whoever needs the time is handed one of these."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The present instant, aware, UTC."""
    return datetime.now(UTC)
