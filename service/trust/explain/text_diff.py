"""Finds and describes the first difference of two texts, including invisible ones. Pure."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, Final
from urllib.parse import unquote

from msgspec import Meta, Struct

from service.core.text_rules import is_plain

SHOWN_CHARS_MAX: Final = 1024
SHOWN_ENTRIES_MAX: Final = 16
EDITS_MAX: Final = 8
"""Texts that are more edits apart are not compared by character."""
_ELLIPSIS: Final = "…"
# Normalising long hostile texts is slow, and no bindable sub is longer than this.
_HINT_CHARS_MAX: Final = 1024
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Shown = str | list[str] | None
"""A displayable value; None if it is missing."""


class Difference(Struct, kw_only=True, frozen=True, rename="camel"):
    """The first difference of two texts; at an end, character is empty and code point null."""

    compared_with: str
    at: Annotated[int, Meta(description="In code points, from 0.")]
    expected: str
    found: str
    expected_code_point: str | None
    found_code_point: str | None
    hint: str | None


def difference_of(expected: str, found: str, *, is_related: bool = False) -> Difference | None:
    """The first difference of `found` from `expected`.

    None if they are equal, or unrelated: a few edits apart at most, unless they are known to mean
    the same.
    """
    if expected == found:
        return None
    hint = _hint(expected, found)
    if not (is_related or hint or _is_close(expected, found)):
        return None
    at = common_prefix(expected, found)
    expected_character, found_character = expected[at : at + 1], found[at : at + 1]
    return Difference(
        compared_with=display_text(expected),
        at=at,
        expected=display_text(expected_character),
        found=display_text(found_character),
        expected_code_point=_code_point(expected_character),
        found_code_point=_code_point(found_character),
        hint=hint or _character_hint(expected_character, found_character),
    )


def _is_close(first: str, second: str) -> bool:
    """True if few edits, fewer than half of the characters, turn one text into the other."""
    longer = max(len(first), len(second))
    limit = min(EDITS_MAX, max(longer // 4, 2), longer // 2)
    # By diagonal (place in `second` less that in `first`), how much of `first` so many edits turn
    # into `second`: time is in the edits, not in the lengths of hostile texts.
    reached = {0: common_prefix(first, second)}
    for _ in range(limit):
        if reached.get(len(second) - len(first)) == len(first):
            return True
        reached = _with_another_edit(reached, first, second)
    return reached.get(len(second) - len(first)) == len(first)


def _with_another_edit(reached: Mapping[int, int], first: str, second: str) -> dict[int, int]:
    further: dict[int, int] = {}
    for diagonal, at in reached.items():
        # A character replaced, left out, or put in.
        for shifted, place in ((diagonal, at + 1), (diagonal - 1, at + 1), (diagonal + 1, at)):
            in_second = place + shifted
            if place <= len(first) and 0 <= in_second <= len(second):
                further[shifted] = max(further.get(shifted, 0), place)
    return {
        diagonal: at + common_prefix(first[at:], second[at + diagonal :])
        for diagonal, at in further.items()
    }


def common_prefix(first: str, second: str) -> int:
    """The length of the common prefix of `first` and `second` in code points."""
    low, high = 0, min(len(first), len(second))
    # Bisection: comparing slices is faster than comparing single characters.
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def display_text(text: str) -> str:
    """`text` for an answer: truncated, with lone surrogates replaced."""
    cut = text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + _ELLIPSIS
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", cut)


def display_value(value: object) -> Shown:
    """A claim's `value`: strings unchanged, lists of strings as lists, anything else as JSON."""
    if value is None or isinstance(value, str):
        return None if value is None else display_text(value)
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return display_list(value)
    return display_text(json.dumps(value))


def display_list(values: list[str]) -> list[str]:
    """The first of `values`, and the number of the rest."""
    left = len(values) - SHOWN_ENTRIES_MAX
    rest = [f"{_ELLIPSIS} and {left} more"] if left > 0 else []
    return [*(display_text(value) for value in values[:SHOWN_ENTRIES_MAX]), *rest]


def _code_point(character: str) -> str | None:
    if not character:
        return None
    name = unicodedata.name(character, f"<{unicodedata.category(character)}>")
    return f"U+{ord(character):04X} {name}"


def _hint(expected: str, found: str) -> str | None:
    """In what texts differ that are otherwise the same, or None."""
    if max(len(expected), len(found)) > _HINT_CHARS_MAX:
        return None
    return next((hint for hint, same in _HINTS if same(expected) == same(found)), None)


def _character_hint(expected: str, found: str) -> str | None:
    for character, place in ((found, "found"), (expected, "expected")):
        if character and not is_plain(character):
            return f"there is an invisible character in what was {place}"
    if found.isalpha() and not found.isascii() and expected.isascii():
        return "a character that only looks like an ASCII one was found"
    if expected.isalpha() and not expected.isascii() and found.isascii():
        return "a character that only looks like an ASCII one was expected"
    return None


def _ascii_lower(text: str) -> str:
    # ASCII only: a Kelvin sign is not an upper-case k but another character.
    return "".join(c.lower() if c.isascii() else c for c in text)


_HINTS: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("white space at an end", str.strip),
    ("a slash at the end", lambda text: text.rstrip("/")),
    ("only upper and lower case differ", _ascii_lower),
    (
        "the same text in another Unicode normal form (NFC, NFD)",
        lambda text: unicodedata.normalize("NFC", text),
    ),
    ("the same text, percent-encoded once more or once less", unquote),
)
