"""The text of a value, with its surroundings, in a line of CSV or in a JSON object."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import WIRE_COLUMNS

GUARDED: Final = "=+-@＝＋－＠'\t\r\n"
"""The first characters of formulas, full-width signs included, and of guarded values."""

_FORMULA_START: Final = f"^[{re.escape(GUARDED)}]"
_QUOTED: Final = '",;\n\r'
"""A `;` ends a cell where a comma is part of numbers: the next one could begin with a formula."""
_ESCAPED: Final = r'["\\\x00-\x1f\x7f]'
_FIRST, *_, _LAST = WIRE_COLUMNS
_PAYLOAD: Final = "payload"


class Spelling(Protocol):
    """What each column adds to the text of a row."""

    def around(self, name: str) -> tuple[str, str]:
        """The text before and after a value that needs no escapes, such as digits."""

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """The text in a row for each of `values`, including nulls, with its surroundings."""


@dataclass(frozen=True, slots=True)
class CsvSpelling:
    """A line of CSV (RFC 4180, UTF-8, LF); null is an empty field, empty text a quoted one.

    Unless `is_raw`, a value a spreadsheet could take for a formula gets a `'` before it, as does
    one that begins with `'`, so that removing the first one restores every value.
    """

    is_raw: bool

    def around(self, name: str) -> tuple[str, str]:
        """See Spelling."""
        return "", "\n" if name == _LAST else ","

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """See Spelling."""
        guard = self._guard(values)
        _, end = self.around(name)
        if not _may_hold(values, _QUOTED) and pc.min(pc.binary_length(values)).as_py() != 0:
            return _joined(guard, values, end)
        needs_quotes = pc.match_substring_regex(values, f"^$|[{_QUOTED}]")
        quote = pc.if_else(needs_quotes, '"', "")
        return _joined(quote, guard, pc.replace_substring(values, '"', '""'), quote, end)

    def _guard(self, values: pa.StringArray) -> pa.StringArray | str:
        """The text to insert before each of `values`, within its quotes."""
        if self.is_raw:
            return ""
        is_formula = pc.match_substring_regex(values, _FORMULA_START)
        return pc.if_else(is_formula, "'", "") if pc.any(is_formula).as_py() else ""


@dataclass(frozen=True, slots=True)
class JsonSpelling:
    """A JSON object on one line, `before` it and `after` it what separates it from others."""

    before: str
    after: str

    def around(self, name: str) -> tuple[str, str]:
        """See Spelling."""
        return f'{self._key(name)}"', f'"{self._end(name)}'

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """See Spelling."""
        if name == _PAYLOAD:
            spelt = around(self._key(name), _on_one_line(values), self._end(name))
        else:
            before, after = self.around(name)
            spelt = around(before, _escaped(values), after)
        if not spelt.null_count:
            return spelt
        return spelt.fill_null(f"{self._key(name)}null{self._end(name)}")

    def _key(self, name: str) -> str:
        return (self.before + "{" if name == _FIRST else ",") + f'"{name}":'

    def _end(self, name: str) -> str:
        return "}" + self.after if name == _LAST else ""


def guarded(value: str) -> str:
    """`value`, guarded like CsvSpelling does."""
    return f"'{value}" if value[:1] and value[0] in GUARDED else value


def unguarded(value: str) -> str:
    """What `value` was before CsvSpelling guarded it; other values stay as they are."""
    return value[1:] if value[:1] == "'" and value[1:2] and value[1] in GUARDED else value


def around(before: str, values: pa.StringArray, after: str) -> pa.StringArray:
    """`values` with the same text before each of them and after it; nulls stay null."""
    first, last, nothing = (pa.scalar(text, pa.string()) for text in (before, after, ""))
    return pc.binary_join_element_wise(first, values, last, nothing)


def _joined(*texts: pa.StringArray | str) -> pa.StringArray:
    """The rows of `texts`, each as one text; null is nothing."""
    columns = (pa.scalar(text, pa.string()) if isinstance(text, str) else text for text in texts)
    nothing = pa.scalar("", pa.string())
    return pc.binary_join_element_wise(*columns, nothing, null_handling="replace")


def _on_one_line(payloads: pa.StringArray) -> pa.StringArray:
    """Values that are JSON already and go into a row's object unchanged, including nulls.

    A line break can only occur between tokens, where a space means the same.
    """
    for line_break in filter(lambda one: _may_hold(payloads, one), "\n\r"):
        payloads = pc.replace_substring(payloads, line_break, " ")
    return payloads


def _escaped(values: pa.StringArray) -> pa.StringArray:
    """`values` escaped for a JSON string; few of them need escapes."""
    if not _may_hold(values, '"\\\x7f') and not _may_hold_controls(values):
        return values
    is_rare = pc.match_substring_regex(values, _ESCAPED).fill_null(False)
    if not pc.any(is_rare).as_py():
        return values
    return pc.replace_with_mask(values, is_rare, _encoded(values.filter(is_rare)))


def _encoded(values: pa.StringArray) -> pa.StringArray:
    """Each of `values` as JSON, without its quotes."""
    # Imported here, because it takes 40 MB, and most processes never export such a value.
    import polars as pl

    rare = pl.Series("value", values).to_frame()
    encoded = rare.select(pl.struct("value").struct.json_encode().alias("value"))
    bare = encoded["value"].str.strip_prefix('{"value":"').str.strip_suffix('"}')
    return bare.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _may_hold(values: pa.StringArray, characters: str) -> bool:
    """False if none of `values` has any of these ASCII `characters`.

    Checks all values at once: looking at each would take longer than everything else.
    """
    content = values.buffers()[2]
    return content is not None and any(
        character in searched
        for searched in [content.to_pybytes()]
        for character in characters.encode()
    )


def _may_hold_controls(values: pa.StringArray) -> bool:
    """As `_may_hold`, for the characters up to U+001F."""
    content = values.buffers()[2]
    if not content:
        return False
    least = pc.min(pa.Array.from_buffers(pa.uint8(), len(content), [None, content])).as_py()
    return least is not None and least < ord(" ")
