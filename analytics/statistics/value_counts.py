"""Counting the values of one column of a segment, apart by event and decision."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.statistics.dictionary import KIND_COLUMNS, Dictionary, Kind, Values

_Kind = tuple[str | None, str | None]
_SHIFT: Final = pa.scalar(32, pa.int64())
"""The number of a kind stands above that of a text: both are counted and sorted as one number."""

_PLACE: Final = pa.scalar(2**32 - 1, pa.int64())
"""What the place of a text is taken out with."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows there are of each kind with each of `texts`, and with null.

    A line's key holds the place of the text, or that behind them all, and the number of the kind.
    """

    texts: pa.StringArray
    kinds: tuple[_Kind, ...]
    keys: pa.Int64Array
    counts: pa.Int64Array

    def as_values(self, dictionary: Dictionary, codes: pa.Int32Array) -> Values:
        """The same in `codes` of `dictionary`, one for each of the texts."""
        kinds = pc.shift_right(self.keys, _SHIFT)
        places = pc.bit_wise_and(self.keys, _PLACE)
        is_text = pc.less(places, len(self.texts))
        codes = codes.take(places.filter(is_text))
        order = pc.array_sort_indices(
            pc.bit_wise_or(pc.shift_left(kinds.filter(is_text), _SHIFT), codes.cast(pa.int64()))
        )
        return Values(
            dictionary.lineage,
            len(dictionary.texts),
            tuple(self._runs(kinds, is_text)),
            codes.take(order),
            self.counts.filter(is_text).take(order).cast(pa.int32()),
        )

    def _runs(self, kinds: pa.Int64Array, is_text: pa.BooleanArray) -> Iterator[Kind]:
        start = 0
        for number in sorted(pc.unique(kinds).to_pylist()):
            of_kind = pc.equal(kinds, number)
            valued = pc.and_(of_kind, is_text)
            event, decision = self.kinds[number]
            stop = start + pc.sum(valued).as_py()
            rows, total = (
                pc.sum(self.counts.filter(one)).as_py() or 0 for one in (valued, of_kind)
            )
            yield Kind(event, decision, start, stop, rows, total - rows)
            start = stop


def count_values(groups: Iterable[pa.Table], column: str, lines_max: int) -> Counted | None:
    """The values of `column` in `groups`, all of which have KIND_COLUMNS too.

    None when they differ in more than `lines_max` ways, kinds included.
    """
    rows = pa.concat_tables(groups)
    texts, events, decisions = (_dictionary(rows[name]) for name in (column, *KIND_COLUMNS))
    kinds = pc.add(pc.multiply(_places(events), len(decisions.dictionary) + 1), _places(decisions))
    counted = pc.value_counts(pc.bit_wise_or(pc.shift_left(kinds, _SHIFT), _places(texts)))
    if len(counted) > lines_max:
        return None
    return Counted(
        texts.dictionary,
        tuple(_kinds(events.dictionary, decisions.dictionary)),
        counted.field("values"),
        counted.field("counts"),
    )


def in_codes(counted: Sequence[Counted], dictionary: Dictionary) -> tuple[Dictionary, list[Values]]:
    """`counted` in codes of `dictionary`, and that dictionary, grown by what it lacked."""
    texts = pa.concat_arrays([pa.array([], pa.string()), *(one.texts for one in counted)])
    dictionary, codes = dictionary.with_texts(texts)
    ends = list(accumulate(len(one.texts) for one in counted))
    starts = [0, *ends]
    return dictionary, [
        one.as_values(dictionary, codes[start:end])
        for one, start, end in zip(counted, starts, ends, strict=False)
    ]


def _kinds(events: pa.StringArray, decisions: pa.StringArray) -> Iterator[_Kind]:
    """Every event there may be with every decision, null last, in the order of their numbers."""
    for event in [*events.to_pylist(), None]:
        for decision in [*decisions.to_pylist(), None]:
            yield event, decision


def _places(column: pa.DictionaryArray) -> pa.Int64Array:
    """Where in the dictionary each value is; null is behind all that is in it."""
    return pc.fill_null(column.indices.cast(pa.int64()), len(column.dictionary))


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """All of `column` in one piece, whether it was read as a dictionary or not."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif column.num_chunks == 0:
        return pa.array([], pa.string()).dictionary_encode()
    return column.unify_dictionaries().combine_chunks()
