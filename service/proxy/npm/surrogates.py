"""Lone surrogates in JSON texts.

npm cuts long readmes after a number of UTF-16 units, which may be in the middle of a character.
JSON allows the half that is left as an escape; it is no character, and msgspec refuses it.
"""

import re
from typing import Final

# Escapes are read one after the other, so that an escaped backslash before a `u` is none of them.
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def replace_lone_surrogates(document: bytes) -> bytes:
    """`document` (JSON) with U+FFFD for each escape of half a character."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match["lone"] else match[0], document)
