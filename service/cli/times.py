"""Instants at the command line: `24h` for how long ago, and back."""

from datetime import UTC, datetime, timedelta
from typing import Final

import click

from analytics.model.instants import format_us, parse_instant, parse_since
from service.core.durations import parse_duration

_STEPS: Final = (
    (timedelta(minutes=1), timedelta(seconds=1), "s"),
    (timedelta(hours=1), timedelta(minutes=1), "min"),
    (timedelta(days=2), timedelta(hours=1), "h"),
    (timedelta(days=60), timedelta(days=1), "days"),
)
"""Up to which age an instant is shown in which unit; older ones are shown as their date."""


class InstantOrAge(click.ParamType[str]):
    """An instant or a date as the API takes it; or an age such as `24h`, `30m` or `7d`.

    An age becomes the instant that long ago. An instant or a date is passed on as it is: a date
    has another meaning after `--until` than after `--since`. Anything else is a wrong usage.
    """

    name = "instant"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """`value` as an instant in the API's format."""
        age = parse_duration(value, "smhdw", digits_max=6)
        if age is None:
            try:
                parse_since(value)
            except ValueError:
                self.fail(
                    f"{value!r} is no instant (2026-01-31T08:00:00Z), date (2026-01-31) or age"
                    " (30m, 24h, 7d)",
                    param,
                    ctx,
                )
            return value
        try:
            return format_us(datetime.now(UTC) - age)
        except OverflowError:
            self.fail(f"{value} ago is before the year 1", param, ctx)


INSTANT: Final = InstantOrAge()


def relative_time(text: str, now: datetime) -> str:
    """The instant `text` seen from `now`, such as `3 h ago`; its date if that is long ago.

    Any other text is returned unchanged.
    """
    try:
        instant = parse_instant(text)
    except ValueError:
        return text
    age = abs(now - instant)
    for below, unit, name in _STEPS:
        if age < below:
            number = age // unit
            words = f"{number} {'day' if (number, name) == (1, 'days') else name}"
            return f"{words} ago" if now >= instant else f"in {words}"
    return f"{instant:%Y-%m-%d}"
