"""How often each value occurs in many segments together, added up from what is known of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.filters import Condition, Query, condition_mask
from analytics.statistics.dictionary import KIND_COLUMNS, Dictionary, Values, new_dictionary
from analytics.statistics.value_index import ValueIndex
from analytics.statistics.zone_maps import is_within
from analytics.storage.segment_metadata import Segment

BLOCK_DAYS: Final = 16
"""Sums are kept of so many days at a time: what changes is mostly the newest day."""

_NAME_BYTES: Final = 100
"""What the id of a segment takes in a key, roughly."""

# Scalars with a type: to guess it Arrow looks for a module that is not there, each time anew.
_ZERO: Final = pa.scalar(0, pa.int64())
_EMPTY: Final = pa.scalar("", pa.string())

_Known = tuple[Segment, Values]


@dataclass(frozen=True, slots=True)
class Totals:
    """How many rows have each of `texts`; a text may have none."""

    texts: pa.StringArray
    counts: pa.Int64Array

    def plus(self, texts: pa.StringArray, counts: pa.Int64Array) -> "Totals":
        """These and other rows; each of their `texts` is there once."""
        # The many are looked up among the few: a table of the few is sooner made.
        places = pc.index_in(self.texts, value_set=texts)
        more = pc.fill_null(counts.take(places), _ZERO)
        is_new = pc.invert(pc.is_in(pa.array(range(len(texts)), places.type), value_set=places))
        return Totals(
            pa.concat_arrays([self.texts, texts.filter(is_new)]),
            pa.concat_arrays([pc.add(self.counts, more), counts.filter(is_new)]),
        )

    def top(self, number: int) -> list[tuple[str, int]]:
        """The most frequent, of equals the one that sorts first; no empty text."""
        is_value = pc.and_(pc.greater(self.counts, _ZERO), pc.not_equal(self.texts, _EMPTY))
        texts, counts = self.texts.filter(is_value), self.counts.filter(is_value)
        if len(counts) > number:
            first = pc.select_k_unstable(counts, number, [("", "descending")])
            # With all that are as frequent as the last: which of those belong, their texts say.
            is_in = pc.greater_equal(counts, counts[first[-1].as_py()])
            texts, counts = texts.filter(is_in), counts.filter(is_in)
        found = zip(texts.to_pylist(), counts.to_pylist(), strict=True)
        return sorted(found, key=lambda one: (-one[1], one[0]))[:number]


NOTHING: Final = Totals(pa.array([], pa.string()), pa.array([], pa.int64()))


def totals(
    index: ValueIndex, segments: Sequence[Segment], query: Query, watermark: int, column: str
) -> tuple[Totals, list[Segment]]:
    """How often each value of `column` is in the rows of `query`, and the segments left out of it.

    Those have to be read: they are cut by a bound or the watermark, or not learnt. All of them if
    the query has a condition on another column than this, event and decision.
    """
    if not {one.column for one in query.conditions} <= {column, *KIND_COLUMNS}:
        return NOTHING, list(segments)
    whole = [segment for segment in segments if is_within(segment, query, watermark)]
    index.want(whole, [column])
    known, dictionary = _known(index, whole, column)
    on_kinds = tuple(one for one in query.conditions if one.column in KIND_COLUMNS)
    counts = _add_up(index.cache, known, dictionary, on_kinds)
    for condition in query.conditions:
        if condition.column == column:
            is_met = condition_mask(condition, dictionary.texts)
            counts = pc.if_else(is_met, counts, _ZERO)
    held = {segment.segment_id for segment, _ in known}
    left = [segment for segment in segments if segment.segment_id not in held]
    return Totals(dictionary.texts, counts), left


def _known(
    index: ValueIndex, segments: Iterable[Segment], column: str
) -> tuple[list[_Known], Dictionary]:
    """What is known of `segments`, and a dictionary of all of it; it may grow meanwhile."""
    known: list[_Known] = []
    dictionary = new_dictionary()
    for segment in segments:
        _, values, dictionary = index.find(segment, column)
        if values is not None:
            known.append((segment, values))
    return [one for one in known if one[1].are_of(dictionary)], dictionary


def _add_up(
    cache: ByteCache, known: Iterable[_Known], dictionary: Dictionary, on_kinds: Sequence[Condition]
) -> pa.Int64Array:
    """The sum of all `known`, by code of `dictionary`; of the kinds that meet `on_kinds`."""
    total = pa.repeat(_ZERO, len(dictionary.texts))
    ordered = sorted(known, key=lambda one: (one[0].day, one[0].segment_id))
    for _, run in groupby(ordered, key=lambda one: one[0].day.toordinal() // BLOCK_DAYS):
        block = list(run)
        names = tuple(segment.segment_id for segment, _ in block)
        key = ("total", dictionary.lineage, on_kinds, names)
        is_known, counts = cache.find(key)
        if not is_known:
            counts = _sum([values for _, values in block], on_kinds)
            cache.keep(key, counts, int(counts.nbytes) + ENTRY_BYTES + _NAME_BYTES * len(names))
        # The dictionary may have grown since, by what none of these segments has.
        missing = pa.repeat(_ZERO, len(total) - len(counts))
        total = pc.add(total, pa.concat_arrays([counts, missing]))
    return total


def _sum(block: Sequence[Values], on_kinds: Sequence[Condition]) -> pa.Int64Array:
    parts = [part for values in block for part in values.of_kinds(on_kinds)]
    lines = pa.table(
        {
            "code": pa.chunked_array([codes for codes, _ in parts], pa.int32()),
            "rows": pa.chunked_array([counts for _, counts in parts], pa.int32()),
        }
    )
    added = lines.group_by("code", use_threads=False).aggregate([("rows", "sum")]).combine_chunks()
    places = pa.concat_arrays([pa.array([], pa.int32()), *added["code"].chunks])
    counts = pa.concat_arrays([pa.array([], pa.int64()), *added["rows_sum"].chunks])
    return _spread(counts, places, max(values.reach for values in block))


def _spread(counts: pa.Int64Array, places: pa.Int32Array, length: int) -> pa.Int64Array:
    """Zeros, but `counts` at `places`."""
    if length == 0:
        return counts
    return pc.fill_null(pc.scatter(counts, places, max_index=length - 1), _ZERO)
