"""One JSON object, read so that nobody else could read it differently (RFC 8259, RFC 7493).

Tokens and key sets both come from outside: no member twice, no number beyond range, no half of a
surrogate pair, no depth that has to be climbed.
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
    """Bytes that are no JSON object, or that two readers could understand in two ways."""


def strict_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` is, in UTF-8. Raises NotStrictJson.

    The size is the caller's to bound.
    """
    try:
        value = _decoder.decode(raw.decode())  # a byte order mark stays, and is no JSON
    except (ValueError, RecursionError) as error:
        raise NotStrictJson("not strict JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise NotStrictJson("not a JSON object")
    _refuse_deep_nesting(value)
    if _SURROGATE.search(raw):
        _refuse_lone_surrogates(value)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is named twice")
    return members


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
    object_pairs_hook=_members,
    parse_int=_integer,
    parse_float=_number,
    parse_constant=_refuse_constant,
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
