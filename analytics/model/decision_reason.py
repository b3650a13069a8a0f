"""Fits an envelope into the `decision_reason` column: at most 256 code points of valid JSON."""

from bisect import bisect_left
from itertools import islice
from typing import Any, Final

import msgspec

DECISION_REASON_MAX: Final = 256
_ENTRIES_MAX: Final = DECISION_REASON_MAX // 2 + 1
"""No more entries can fit: each takes at least a comma and one character."""

_ELLIPSIS: Final = "…"
_COMFORTABLE: Final = 24  # strings are cut below this only after lists and inner objects have been


def compact(value: object) -> str:
    """JSON without spaces, not escaped to ASCII."""
    return msgspec.json.encode(value).decode()


def decision_reason(keys: dict[str, Any]) -> str:
    """`keys` as compact JSON of at most 256 code points (see docs/audit-rows.md).

    If it does not fit it loses text, never structure: the longest strings are cut to a common
    length (ending in an ellipsis), long lists and inner objects lose entries from their end, and
    `"truncated":true` is added. Raises ValueError for an envelope whose bare keys do not fit.
    """
    whole = compact(keys)
    if len(whole) <= DECISION_REASON_MAX:
        return whole
    steps = _steps(min(max(map(_most_entries, keys.values()), default=0), _ENTRIES_MAX))

    def shortened(step: tuple[int, int]) -> str:
        return compact({**_cut_values(keys, *step), "truncated": True})

    # Each step leaves less than the one before: bisection finds the first that fits.
    first = bisect_left(steps, True, key=lambda step: len(shortened(step)) <= DECISION_REASON_MAX)
    if first == len(steps):
        raise ValueError("an envelope of this shape cannot fit decision_reason")
    return shortened(steps[first])


def _steps(most_entries: int) -> list[tuple[int, int]]:
    """The lengths and numbers of entries to cut to; those that lose least come first."""
    return [
        *((length, most_entries) for length in range(DECISION_REASON_MAX, _COMFORTABLE, -1)),
        *((_COMFORTABLE, entries) for entries in range(most_entries, -1, -1)),
        *((length, 0) for length in range(_COMFORTABLE - 1, 0, -1)),
    ]


def _most_entries(value: object) -> int:
    match value:
        case dict():
            return max([len(value), *map(_most_entries, value.values())])
        case list():
            return max([len(value), *map(_most_entries, value)])
        case _:
            return 0


def _cut_values(keys: dict[str, Any], length: int, entries: int) -> dict[str, Any]:
    """All of `keys`, with shortened values."""
    return {key: _cut(value, length, entries) for key, value in keys.items()}


def _cut(value: Any, length: int, entries: int) -> Any:  # noqa: ANN401 - JSON has no one type
    match value:
        case str() if len(value) > length:
            return value[: length - 1] + _ELLIPSIS
        case dict():
            return _cut_values(dict(islice(value.items(), entries)), length, entries)
        case list():
            return [_cut(inner, length, entries) for inner in value[:entries]]
        case _:
            return value
