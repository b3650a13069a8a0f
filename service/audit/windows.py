"""Windows up to now, such as `24h`: a number of minutes, hours, days or weeks."""

from datetime import timedelta
from typing import Final

from analytics.model.filters import InvalidQuery
from service.core.durations import parse_duration

WINDOW: Final = "last"
"""The parameter of pages and saved searches that names a window."""


def window_length(text: str) -> timedelta | None:
    """The length of a window such as `24h`; None if `text` is no such length."""
    return None if text.startswith("0") else parse_duration(text, "mhdw", digits_max=5)


def check_window(text: str | None) -> None:
    """Raise InvalidQuery if `text` is given and is no length of time."""
    if text is not None and window_length(text) is None:
        raise InvalidQuery(
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
            field=WINDOW,
        )
