"""Reads JSON from outside only if all readers agree on its meaning (RFC 8259, RFC 7493).

Tokens and key sets have no key twice, no number beyond range, no half of a surrogate pair and a
bounded depth. Rows are read by msgspec, which drops all but the last of equal keys: for them there
is `check_keys`.
"""

import json
import math
import re
from typing import Any, Final, NoReturn

NESTING_MAX: Final = 8
INTEGER_DIGITS_MAX: Final = 32
_CONTAINERS: Final = frozenset({dict, list})
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class NotStrictJson(ValueError):
    """The bytes are not a JSON object, or two readers could interpret them differently."""


class DuplicateKey(ValueError):
    """An object has `key` twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"duplicate key: {key}")
        self.key = key


def check_keys(raw: bytes) -> None:
    """Raise DuplicateKey if an object in `raw`, which is JSON, has a key twice, at any depth."""
    _key_reader.decode(raw.decode())


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these members, for a JSONDecoder. Raises DuplicateKey."""
    members = dict(pairs)
    if len(members) < len(pairs):
        for key, _ in pairs:
            if key not in members:
                raise DuplicateKey(key)
            del members[key]
    return members


def strict_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` is, in UTF-8. Raises NotStrictJson.

    The caller must bound the size.
    """
    try:
        value = _decoder.decode(raw.decode())  # keeps a byte order mark, which is not JSON
    except (ValueError, RecursionError) as error:
        raise NotStrictJson("not strict JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise NotStrictJson("not a JSON object")
    _refuse_deep_nesting(value)
    if _SURROGATE.search(raw):
        _refuse_lone_surrogates(value)
    return value


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise ValueError("an integer is too long")
    return int(digits)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=unique_members,
    parse_int=_integer,
    parse_float=_number,
    parse_constant=_refuse_constant,
)
# Numbers stay text: converting long ones takes time, and only keys are needed.
_key_reader: Final = json.JSONDecoder(
    object_pairs_hook=unique_members, parse_int=str, parse_float=str
)


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise NotStrictJson("a string has half of a surrogate pair") from error


def _refuse_deep_nesting(value: dict[str, Any]) -> None:
    level: list[dict[str, Any] | list[Any]] = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if type(inner) in _CONTAINERS
        ]
        if not level:
            return
    raise NotStrictJson(f"nested deeper than {NESTING_MAX} levels")
