"""Mutants that change nothing that could be noticed, by their names, each with the reason."""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {
    "heads_of:da90ae:bound:1": "a column of several blocks has a head",
    "merged_rows:e3fbdc:constant:1": "the same rows are read a column at a time: that takes memory",
    "decode_cursor:093eef:constant:1": "what is no base64 is not what would be printed, either",
}
