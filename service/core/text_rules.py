"""Characters allowed in untrusted text: in identifiers, and in reasons that people read."""

import unicodedata
from enum import StrEnum
from typing import Final

from service.core.errors import Invalid, ReasonInvalid

REASON_MAX: Final = 1024
NAME_MAX: Final = 100

_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})

# The characters `is_plain` rejects except lone surrogates, as the inside of a regular expression's
# character class: the API's schema states the rule in these terms. A test compares the two.
# Escaped as far as ECMAScript and Python write them alike: YAML readers refuse control characters.
REFUSED_CHARACTERS: Final = (
    r"\u0000-\u0020\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2"
    r"\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064\u2066-\u206f\u3000\ufeff"
    r"\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U00013438\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)

NOTE_INVALID: Final = Invalid.of(
    "note must be at most {limit} visible characters on one line", field="note", limit=REASON_MAX
)

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that are invisible or change how visible text is read."""


def is_plain(text: str) -> bool:
    """True if `text` has no whitespace, control, format or separator characters.

    Characters that a person cannot see must not be part of an identifier that they trust.
    """
    return not any(c.isspace() or unicodedata.category(c) in _REFUSED_CATEGORIES for c in text)


def visible(text: str) -> str:
    """`text` with a replacement for characters that are invisible or change how it is read."""
    return "".join(_REPLACEMENT if unicodedata.category(c) in _UNSEEN else c for c in text)


def printable(text: str) -> str:
    """`text` with a replacement for characters that are not printable, for messages and logs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _REPLACEMENT for c in text)


def is_encodable(text: str) -> bool:
    """True if `text` has no lone surrogates, which JSON can escape but UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_reason(text: str | None) -> str | None:
    """The reason for revoking a binding, or None if empty. Raises Invalid."""
    if text is None or text == "":
        return None
    if len(text) > REASON_MAX or any(unicodedata.category(c) in _UNSEEN for c in text):
        raise ReasonInvalid
    return text


def parse_note(text: str) -> str | None:
    """What a member notes, or None if that is empty. Raises NOTE_INVALID."""
    if len(text) > REASON_MAX or visible(text) != text:
        raise NOTE_INVALID(limit=REASON_MAX)
    return text.strip() or None


def check_name(name: str) -> None:
    """Raise Invalid unless `name` is printable, trimmed, and 1 to NAME_MAX characters long."""
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable() or name != name.strip():
        raise Invalid(f"name must be 1 to {NAME_MAX} printable characters", field="name")


def check_choice(field: str, value: str, choices: type[StrEnum]) -> str:
    """`value`, which must be one of `choices`. Raises Invalid."""
    if value not in set(choices):
        raise Invalid(f"{field} must be one of {', '.join(choices)}", field=field)
    return value
