"""Finds line numbers in TOML files, which tomllib does not report."""

import re


def line_of(text: str, table: str, key: str | None = None) -> int | None:
    """The 1-based line of `key` in `[table]`, else that of the table, else None.

    A text search for the usual spellings, not a parser: other spellings yield None.
    """
    header = re.compile(rf"\s*\[\s*{_spelling(table)}\s*\]")
    inline = re.compile(rf"\s*{_spelling(table)}\s*[=.]")
    member = None if key is None else re.compile(rf"\s*{_spelling(key)}\s*=")
    line_number, is_top = None, True
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("["):
            if line_number is not None:
                break
            is_top = False
        if line_number is None:
            line_number = number if header.match(line) or (is_top and inline.match(line)) else None
        elif member is not None and member.match(line):
            return number
    return line_number


def _spelling(name: str) -> str:
    return rf"""["']?{re.escape(name)}["']?"""
