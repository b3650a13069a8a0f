"""The claims of the tokens that a binding admitted: few values each, with the day of the last one.

Advice on a binding compares it with them. Pure.
"""

from collections.abc import Collection, Mapping
from datetime import date, timedelta
from typing import Final

EVENT_NAME: Final = "event_name"
"""The name here of the claim with the event, which each provider calls otherwise."""

KEPT_FOR: Final = timedelta(days=90)
VALUES_MAX: Final = 8
VALUE_CHARS_MAX: Final = 256
OTHERS: Final = ""
"""The key of all values beyond VALUES_MAX, and of tokens without the claim."""

SeenClaims = Mapping[str, Mapping[str, str]]
"""By claim, the day (ISO 8601) of the last token with each value."""


def with_tokens(
    stored: SeenClaims | None, seen: Mapping[str, Collection[str]], day: date
) -> dict[str, dict[str, str]]:
    """`stored` and what was `seen` on `day`, without days that are too long ago."""
    oldest = (day - KEPT_FOR).isoformat()
    result = {}
    for claim in sorted({*(stored or {}), *seen}):
        days = {value: at for value, at in (stored or {}).get(claim, {}).items() if at >= oldest}
        for value in seen.get(claim, ()):
            is_known = value in days or len(days) < VALUES_MAX
            days[value if is_known else OTHERS] = day.isoformat()
        if days:
            result[claim] = days
    return result


def values_since(stored: SeenClaims | None, claim: str, day: date) -> Collection[str] | None:
    """All values of `claim` in the tokens since `day`; None if they are too many to tell."""
    days = (stored or {}).get(claim, {})
    values = [value for value, at in sorted(days.items()) if at >= day.isoformat()]
    return None if not values or OTHERS in values else values
