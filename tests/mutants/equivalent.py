"""Mutants that change nothing that could be noticed, by their names, each with the reason."""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "decode_cursor:093eef:constant:1": "what is no base64 is not what would be printed, either",
}
