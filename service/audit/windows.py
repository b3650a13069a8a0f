"""Windows up to now, such as `24h`: a number of minutes, hours, days or weeks."""

import re
from datetime import timedelta
from typing import Final

from analytics.model.filters import InvalidQuery

WINDOW: Final = "last"
"""The parameter of pages and saved searches that names a window."""

_LENGTH: Final = re.compile(r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[mhdw])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def window_length(text: str) -> timedelta | None:
    """The length of a window such as `24h`; None if `text` is no such length."""
    match = _LENGTH.fullmatch(text)
    return None if match is None else timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def check_window(text: str | None) -> None:
    """Raise InvalidQuery if `text` is given and is no length of time."""
    if text is not None and window_length(text) is None:
        raise InvalidQuery(
            "last must be a number of minutes, hours, days or weeks, such as 90m, 24h or 7d",
            field=WINDOW,
        )
