"""How a value stands in a line of CSV or in a JSON object, with what is around it."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import WIRE_COLUMNS

_GUARDED: Final = "=+-@'\t\r\n"
"""What a formula, or a guarded value, begins with."""

_FORMULA_START: Final = f"^[{re.escape(_GUARDED)}]"
_QUOTED: Final = r'[",\n\r]'
_ESCAPED: Final = r'["\\\x00-\x1f\x7f]'
_FIRST, *_, _LAST = WIRE_COLUMNS
_PAYLOAD: Final = "payload"


class Spelling(Protocol):
    """What each column adds to the text of a row."""

    def around(self, name: str) -> tuple[str, str]:
        """What stands before and after a value of digits and the like, which needs no care."""

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """What a row has for each of `values`, nulls among them, with what stands around it."""


@dataclass(frozen=True, slots=True)
class CsvSpelling:
    """A line of CSV (RFC 4180, UTF-8, LF); null is an empty field, empty text a quoted one.

    Unless `is_raw`, a value a spreadsheet could take for a formula gets a `'` before it, as does
    one that begins with `'`, so that taking the first one away restores every value.
    """

    is_raw: bool

    def around(self, name: str) -> tuple[str, str]:
        """See Spelling."""
        return "", "\n" if name == _LAST else ","

    def texts(self, name: str, values: pa.StringArray) -> pa.StringArray:
        """See Spelling."""
        care = _QUOTED if self.is_raw else f"{_FORMULA_START}|{_QUOTED}"
        spelt = _with_care(values, f"^$|{care}", self._spelt())
        return around("", spelt.fill_null(""), self.around(name)[1])

    def _spelt(self) -> pl.Expr:
        value = pl.col("value")
        if not self.is_raw:
            is_formula = value.str.contains(_FORMULA_START)
            value = pl.when(is_formula).then(pl.lit("'") + value).otherwise(value)
        quoted = pl.lit('"') + value.str.replace_all('"', '""', literal=True) + pl.lit('"')
        needs_quotes = value.str.contains(_QUOTED) | (value.str.len_bytes() == 0)
        return pl.when(needs_quotes).then(quoted).otherwise(value)


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
            spelt = _with_care(values, "[\n\r]", json_payload(pl.col("value")))
            return around(self._key(name), spelt.fill_null("null"), self._end(name))
        encoded = pl.struct("value").struct.json_encode()
        bare = encoded.str.strip_prefix('{"value":"').str.strip_suffix('"}')
        values = _with_care(values, _ESCAPED, bare)
        quoted = around(f'{self._key(name)}"', values, f'"{self._end(name)}')
        null = f"{self._key(name)}null{self._end(name)}"
        return quoted.fill_null(null) if values.null_count else quoted

    def _key(self, name: str) -> str:
        return (self.before + "{" if name == _FIRST else ",") + f'"{name}":'

    def _end(self, name: str) -> str:
        return "}" + self.after if name == _LAST else ""


def json_payload(payload: pl.Expr) -> pl.Expr:
    """`payload` (or null) as a member of a row's object: it is JSON already, and goes in as it is.

    A line break in it can only stand between tokens, where a space means the same.
    """
    return payload.str.replace_many(["\n", "\r"], [" ", " "])


def unguarded(value: str) -> str:
    """What `value` was before CsvSpelling guarded it; other values stay as they are."""
    return value[1:] if value[:1] == "'" and value[1:2] and value[1] in _GUARDED else value


def around(before: str, values: pa.StringArray, after: str) -> pa.StringArray:
    """`values` with the same text before each of them and after it; nulls stay null."""
    first, last, nothing = (pa.scalar(text, pa.string()) for text in (before, after, ""))
    return pc.binary_join_element_wise(first, values, last, nothing)


def _with_care(values: pa.StringArray, pattern: str, text: pl.Expr) -> pa.StringArray:
    """`values`, those that match replaced by `text`; they are few."""
    is_rare = pc.match_substring_regex(values, pattern).fill_null(False)
    if not pc.any(is_rare).as_py():
        return values
    rare = pl.Series("value", values.filter(is_rare)).to_frame()
    texts = rare.select(text).to_series().to_arrow(compat_level=pl.CompatLevel.oldest())
    return pc.replace_with_mask(values, is_rare, texts.cast(pa.string()))
