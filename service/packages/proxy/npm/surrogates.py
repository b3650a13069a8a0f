"""Replaces lone surrogates in JSON texts.

npm cuts long readmes after a number of UTF-16 units, possibly in the middle of a character. JSON
allows the remaining half as an escape, but it is not a character, and msgspec refuses it.
"""

import re
from typing import Final

# All escapes are matched in turn, so that the `u` after an escaped backslash begins none.
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def replace_lone_surrogates(document: bytes) -> bytes:
    """`document` (JSON) with U+FFFD in place of each escape of half a character."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match["lone"] else match[0], document)
