"""Lengths of time as people type them, such as `24h`."""

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def parse_duration(text: str, units: str, *, digits_max: int) -> timedelta | None:
    """The length of time in `text`, digits and one of `units`; None for any other text."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in units or len(match[1]) > digits_max:
        return None
    return int(match[1]) * _UNITS[match[2]]
