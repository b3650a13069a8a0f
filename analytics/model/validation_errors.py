"""Errors about values of the wrong type, in the API's words: first the field, then the rule."""

import re
from typing import Final

import msgspec

_TYPES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "a JSON object",
    "array": "an array",
    "null": "null",
}
_SHAPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_LENGTH: Final = re.compile(r"Expected `(str|array)` of length (>=|<=) (\d+)")
_BOUND: Final = re.compile(r"Expected `(?:int|float)` (>=|<=) (\S+)")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_LIMITS: Final = {">=": "at least", "<=": "at most"}


def describe(error: msgspec.ValidationError, within: str = "") -> str:
    """`error` as a sentence about the field: `envelope.rule_id must be a string, not an integer`.

    `within` is the member of the item that was read; without it, it was the item. What msgspec says
    of other faults follows the field as it is.
    """
    # The last one: a field's name, which comes before, is the sender's to choose.
    reason, mark, place = str(error).rpartition(" - at `$")
    if not mark:
        reason, place = str(error), ""
    path = f"{within}{place.rstrip('`')}".removeprefix(".")
    inner = f"{path}." if path else ""
    if match := _MISSING.fullmatch(reason):
        return f"{inner}{match[1]} is required"
    if match := _UNKNOWN.fullmatch(reason):
        return f"unknown field: {inner}{match[1]}"
    field = path or "item"
    if match := _SHAPE.fullmatch(reason):
        return f"{field} must be {_either(match[1])}, not {_either(match[2])}"
    if match := _LENGTH.fullmatch(reason):
        unit = "characters" if match[1] == "str" else "items"
        return f"{field} must have {_LIMITS[match[2]]} {match[3]} {unit}"
    if match := _BOUND.fullmatch(reason):
        return f"{field} must be {_LIMITS[match[1]]} {match[2]}"
    return f"{field}: {reason}"


def _either(types: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in types.split(" | "))
