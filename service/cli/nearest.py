"""The known name that is most like a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, or None if none is; case does not count."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def did_you_mean(text: str, name: str, known: Iterable[str]) -> str:
    """`text`, with the known name that is most like `name` if there is one."""
    close = nearest(name, known)
    return text if close is None else f"{text}: did you mean {close}?"
