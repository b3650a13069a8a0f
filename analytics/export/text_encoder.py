"""Encodes rows as the text of a file; each different value of a column is encoded once."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.export.csv_json import Spelling, around
from analytics.export.gather import Part, constant, joined, one_each
from analytics.model.schema import ID_DIGITS, ID_PREFIX, WIRE_COLUMNS

_LOW_DIGITS: Final = 4
_MINUTE_CHARS: Final = len("2026-01-31T12:59:")
_MINUTE_US: Final = 60_000_000
_HUNDREDTH_US: Final = 10_000
_SAMPLE_ROWS: Final = 1_024
_REPEATED: Final = 4
"""How often a value must occur on average for it to be worth looking for repetitions."""

_INDEX: Final = pa.int32()
_NAIVE_US: Final = pa.timestamp("us")
_NAIVE_S: Final = pa.timestamp("s")


class TextEncoder:
    """Encodes the rows of one tenant as text, one table after the other.

    `columns` are the members of a row in their order, by the columns they are made of.
    """

    def __init__(
        self, tenant_id: str, spelling: Spelling, columns: Mapping[str, str] = WIRE_COLUMNS
    ) -> None:
        self._tenant_id = tenant_id
        self._spelling = spelling
        self._columns = columns
        # The last dictionary of each column, with its texts: tables of one row group share it. It
        # is kept alive, because another one could get the same address in memory.
        self._known: dict[str, tuple[pa.Array, pa.StringArray]] = {}

    def texts(self, rows: pa.Table) -> Iterator[tuple[bytes, int]]:
        """The text of `rows`, at least one, in pieces; how many rows each has.

        `rows` have AUDIT_SCHEMA, except that text columns may be dictionary-encoded.
        """
        return joined([part for name in self._columns for part in self._parts(name, rows)])

    def _parts(self, name: str, rows: pa.Table) -> list[Part]:
        if name == "tenant_id":
            (text,) = self._spelling.texts(
                name, pa.array([self._tenant_id], pa.string())
            ).to_pylist()
            return [constant(text, rows.num_rows)]
        values = _whole(rows.column(self._columns[name]))
        before, after = self._spelling.around(name)
        if name == "id":
            return _id_parts(values, before, after)
        if pa.types.is_timestamp(values.type):
            return _instant_parts(values, before, after)
        if not pa.types.is_dictionary(values.type) and _is_repetitive(values):
            values = values.dictionary_encode()
        if pa.types.is_dictionary(values.type):
            if len(values.dictionary) <= len(values):
                return [self._dictionary_part(name, values)]
            values = values.dictionary_decode()
        return [one_each(self._spelling.texts(name, values))]

    def _dictionary_part(self, name: str, values: pa.DictionaryArray) -> Part:
        dictionary = values.dictionary
        known, texts = self._known.get(name, (None, None))
        if known is None or _place(known) != _place(dictionary):
            # The last text is for null.
            nulls = self._spelling.texts(name, pa.nulls(1, pa.string()))
            texts = pa.concat_arrays([self._spelling.texts(name, dictionary), nulls])
            self._known[name] = dictionary, texts
        indices = values.indices.cast(_INDEX)
        if not indices.null_count:
            return Part(texts.slice(0, len(dictionary)), indices)
        return Part(texts, indices.fill_null(len(dictionary)))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """The column in one array, and with one dictionary if it has any."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


def _place(values: pa.StringArray) -> tuple[object, ...]:
    """The address of the values in memory, and their number."""
    addresses = [None if buffer is None else buffer.address for buffer in values.buffers()]
    return (*addresses, values.offset, len(values))


def _is_repetitive(values: pa.StringArray) -> bool:
    sample = values.slice(0, _SAMPLE_ROWS)
    return bool(pc.count_distinct(sample, mode="all").as_py() * _REPEATED <= len(sample))


def _id_parts(seq: pa.Int64Array, before: str, after: str) -> list[Part]:
    """Ids in two parts: of the high digits few are different, of the low ones there are few."""
    high, low = _divided(seq, 10**_LOW_DIGITS)
    different, indices = _different(high)
    digits = pc.utf8_lpad(different.cast(pa.string()), ID_DIGITS - _LOW_DIGITS, "0")
    texts = around(before + ID_PREFIX, digits, "")
    return [Part(texts, indices), Part(_low_digits(after), low.cast(_INDEX))]


def _instant_parts(at: pa.TimestampArray, before: str, after: str) -> list[Part]:
    """Instants in three parts: the minute, hundredths of a second in it, microseconds in those.

    So the second and the third have about as few different texts as possible.
    """
    us = at.cast(pa.int64())
    # From a minute before all of them, so that also what lies before 1970 is counted forwards.
    base = _number(pc.min(us).as_py() // _MINUTE_US * _MINUTE_US)
    minute, in_minute = _divided(pc.subtract(us, base), _MINUTE_US)
    hundredth, rest = _divided(in_minute.cast(_INDEX), _HUNDREDTH_US)
    different, indices = _different(minute)
    begins = pc.add(pc.multiply(different, _number(_MINUTE_US)), base)
    texts = around(before, _minutes(begins), "")
    return [Part(texts, indices), Part(_hundredths(), hundredth), Part(_microseconds(after), rest)]


def _minutes(begins: pa.Int64Array) -> pa.StringArray:
    """The spelling of instants up to the minute; `strftime` would take ten times as long."""
    whole = begins.cast(_NAIVE_US).cast(_NAIVE_S).cast(pa.string())
    date_end = len("2026-01-31")
    spelt = pc.binary_replace_slice(whole, date_end, date_end + 1, "T")
    return pc.utf8_slice_codeunits(spelt, 0, _MINUTE_CHARS)


def _different(numbers: pa.Int64Array) -> tuple[pa.Int64Array, pa.Int32Array]:
    """All values of `numbers`, and which of them each is."""
    least, most = pc.min_max(numbers).as_py().values()
    if (most - least) * _REPEATED <= len(numbers):
        return pa.arange(least, most + 1), pc.subtract(numbers, _number(least)).cast(_INDEX)
    encoded = numbers.dictionary_encode()
    return encoded.dictionary, encoded.indices


def _divided(numbers: pa.Array, by: int) -> tuple[pa.Array, pa.Array]:
    """Quotients and remainders of `numbers`, none of them negative."""
    divisor = pa.scalar(by, numbers.type)
    quotients = pc.divide(numbers, divisor)
    return quotients, pc.subtract(numbers, pc.multiply(quotients, divisor))


def _number(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int64())


@cache
def _low_digits(after: str) -> pa.StringArray:
    return pa.array([f"{n:0{_LOW_DIGITS}d}{after}" for n in range(10**_LOW_DIGITS)], pa.string())


@cache
def _hundredths() -> pa.StringArray:
    texts = [f"{second:02d}.{n:02d}" for second in range(60) for n in range(100)]
    return pa.array(texts, pa.string())


@cache
def _microseconds(after: str) -> pa.StringArray:
    return pa.array([f"{us:04d}Z{after}" for us in range(_HUNDREDTH_US)], pa.string())
