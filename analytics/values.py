"""Which values the columns of a segment hold: learnt once, then known without opening the file.

The catalog counts the values of a few columns. For those people look for one value in - a
package, an actor - the same is learnt from the file itself, aside and after a query that had to
do without. Segments never change, so what was learnt stays true.
"""

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.byte_cache import ENTRY_BYTES
from analytics.decoded import Decoded
from analytics.faults import StoreFault
from analytics.filters import Condition, Query, Term
from analytics.planning import COUNTED_COLUMNS
from analytics.segments import Segment

VALUES_BYTES_MAX: Final = 256 * 1024
"""What one column of one segment may take. Ids that differ from row to row exceed it."""

WANTED_MAX: Final = 10_000
"""How many columns of segments may wait to be learnt."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one column of one segment, in the order of their code points.

    `ends` says how many rows have one of the values up to and with each. Null is no value.
    """

    texts: pa.StringArray
    ends: "array[int]"

    def rows_alike(self, term: Term) -> int:
        """How many rows have a value like the term's text, negated or not."""
        places = range(len(self.ends))
        first = bisect_left(places, term.text, key=self._text)
        if term.is_prefix:
            behind = bisect_left(
                places, True, lo=first, key=lambda n: not self._text(n).startswith(term.text)
            )
        else:
            behind = first + (first < len(places) and self._text(first) == term.text)
        return self._rows_before(behind) - self._rows_before(first)

    def _text(self, place: int) -> str:
        text: str = self.texts[place].as_py()
        return text

    def _rows_before(self, place: int) -> int:
        return self.ends[place - 1] if place else 0


class ValueIndex:
    """The values of segments, kept in `decoded`'s cache. Safe to use from several threads."""

    def __init__(self, decoded: Decoded) -> None:
        self._decoded = decoded
        self._wanted: dict[tuple[str, str], Segment] = {}
        self._lock = Lock()
        self._is_closed = False
        # No query may want more than half of the cache: it would drive out what it has just learnt.
        self._segments_max = decoded.cache.bytes_max // 2 // VALUES_BYTES_MAX

    def at_most(self, segment: Segment, query: Query) -> int | None:
        """How many rows of `segment` may be in `query`, or None: not known.

        Never too few; if the query has one positive term in all, and no bound, exactly as many.
        """
        bound: int | None = segment.rows
        for condition in learnable(query):
            is_known, values = self._decoded.cache.find(_key(segment, condition.column))
            if values is not None:
                rows = sum(values.rows_alike(term) for term in condition.wanted)
                if rows == 0:
                    return 0
                bound = None if bound is None else min(bound, rows)
            elif not is_known:
                bound = None
        return bound

    def want(self, segments: Iterable[Segment], query: Query) -> None:
        """Let `learn` know what would have helped with `query`; newest days before others."""
        newest = sorted(segments, key=lambda one: one.day, reverse=True)[: self._segments_max]
        for condition in learnable(query):
            for segment in newest:
                key = (segment.segment_id, condition.column)
                with self._lock:
                    if len(self._wanted) < WANTED_MAX and _key(segment, condition.column) not in (
                        self._decoded.cache
                    ):
                        self._wanted[key] = segment

    @property
    def is_wanting(self) -> bool:
        """True when there is something to learn."""
        return bool(self._wanted)

    def learn(self) -> None:
        """Read what is wanted. A file that cannot be read is left to the query that needs it."""
        while not self._is_closed:
            with self._lock:
                if not self._wanted:
                    return
                (segment_id, column), segment = next(iter(self._wanted.items()))
                del self._wanted[segment_id, column]
            try:
                self._learn(segment, column)
            except StoreFault:
                continue

    def close(self) -> None:
        """End `learn`, soon."""
        self._is_closed = True

    def _learn(self, segment: Segment, column: str) -> None:
        def read() -> tuple[Values | None, int]:
            values = count_values(self._decoded.column(segment, column))
            return values, ENTRY_BYTES + (_size(values) if values else 0)

        self._decoded.cache.get(_key(segment, column), read)


def learnable(query: Query) -> list[Condition]:
    """The conditions that a segment's values may rule out, and its catalog line does not."""
    return [one for one in query.conditions if one.wanted and one.column not in COUNTED_COLUMNS]


def count_values(chunks: Iterable[pa.Array]) -> Values | None:
    """The values in all `chunks`, or None when they take more than VALUES_BYTES_MAX."""
    counted = pa.table({"text": pa.array([], pa.string()), "rows": pa.array([], pa.int64())})
    for chunk in chunks:
        counts = pc.value_counts(chunk)
        more = pa.table({"text": counts.field("values"), "rows": counts.field("counts")})
        counted = (
            pa.concat_tables([counted, more.filter(pc.is_valid(more["text"]))])
            .group_by("text")
            .aggregate([("rows", "sum")])
            .rename_columns(["text", "rows"])
        )
        if counted.nbytes > VALUES_BYTES_MAX:
            return None
    ordered = counted.sort_by("text").combine_chunks()
    texts = pa.concat_arrays(ordered["text"].chunks or [pa.array([], pa.string())])
    return Values(texts, array("q", accumulate(ordered["rows"].to_pylist())))


def _size(values: Values) -> int:
    return int(values.texts.nbytes) + len(values.ends) * values.ends.itemsize


def _key(segment: Segment, column: str) -> Hashable:
    return ("values", segment.segment_id, column)
