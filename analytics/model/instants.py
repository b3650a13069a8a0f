"""Instants: aware UTC `datetime` internally, RFC 3339 text externally."""

import re
from datetime import UTC, date, datetime, time, timedelta

_INSTANT = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt ]"
    r"(?P<time>\d{2}:\d{2}:\d{2})(?P<fraction>\.\d{1,6})?"
    r"(?P<zone>[Zz]|[+\- ]\d{2}:[0-5]\d)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def parse_instant(text: str) -> datetime:
    """The instant `text` names: RFC 3339 with 0 to 6 fraction digits; without a zone it is UTC.

    A `+` that URL decoding turned into a space is read as a `+` again.
    Raises ValueError for anything else, dates that do not exist included.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 instant")
    zone = (match["zone"] or "Z").upper().replace(" ", "+").replace("Z", "+00:00")
    fraction = (match["fraction"] or ".").ljust(7, "0")
    instant = datetime.fromisoformat(f"{match['date']}T{match['time']}{fraction}{zone}")
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside the years 1 to 9999") from error


def parse_since(text: str) -> datetime:
    """The inclusive lower bound `text` names; a bare date is its midnight. Raises ValueError."""
    if _DATE.fullmatch(text):
        return midnight(date.fromisoformat(text))
    return parse_instant(text)


def parse_until(text: str) -> datetime:
    """The exclusive upper bound `text` names; a bare date is the end of that day."""
    if not _DATE.fullmatch(text):
        return parse_instant(text)
    day = date.fromisoformat(text)
    return (
        datetime.max.replace(tzinfo=UTC) if day == date.max else midnight(day + timedelta(days=1))
    )


def midnight(day: date) -> datetime:
    """The first instant of the UTC day."""
    return datetime.combine(day, time(), UTC)


def bounds_of(day: date) -> tuple[datetime, datetime]:
    """The first and the last instant of the UTC day, to the microsecond."""
    return midnight(day), datetime.combine(day, time.max, UTC)


def later(instant: datetime, length: timedelta) -> datetime:
    """The instant so much later; the last one of all for what would be after it."""
    try:
        return instant + length
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def utc_day(instant: datetime) -> date:
    """The UTC day an aware instant falls on."""
    return instant.astimezone(UTC).date()


def format_ms(instant: datetime) -> str:
    """RFC 3339 with milliseconds and `Z`: how the binding API prints time."""
    return _zulu(instant, "milliseconds")


def format_us(instant: datetime) -> str:
    """RFC 3339 with microseconds and `Z`: exact, so that audit order can be read off."""
    return _zulu(instant, "microseconds")


def optional_ms(instant: datetime | None) -> str | None:
    """`format_ms` of an instant that may be missing."""
    return None if instant is None else format_ms(instant)


def optional_us(instant: datetime | None) -> str | None:
    """`format_us` of an instant that may be missing."""
    return None if instant is None else format_us(instant)


def _zulu(instant: datetime, timespec: str) -> str:
    # Not strftime: its %Y does not pad a year before 1000.
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"
