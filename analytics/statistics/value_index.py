"""Which values the columns of a segment hold: learnt once, then known without opening the file.

The catalog counts the values of a few columns. For the others - a package, an actor - the same is
learnt from the file itself, aside and after a query that had to do without. Segments never change,
so what was learnt stays true.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from threading import Lock
from typing import Final

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.cache.row_groups import Decoded
from analytics.model.errors import StoreFault
from analytics.model.filters import Condition, Query, Term
from analytics.statistics.dictionary import (
    KIND_COLUMNS,
    Alike,
    Dictionary,
    Kind,
    Values,
    new_dictionary,
)
from analytics.statistics.value_counts import Counted, count_values, in_codes
from analytics.statistics.zone_maps import COUNTED_COLUMNS, is_within
from analytics.storage.segment_metadata import Segment

VALUE_BYTES: Final = 8
"""What a value takes in each segment that has it, besides its text."""

VALUES_BYTES_MAX: Final = 512 * 1024
"""What one column of one segment may take. Ids that differ from row to row exceed it."""

TEXTS_BYTES_MAX: Final = 16 * 2**20
"""What the texts of one column of a tenant may take. What has more that is new is not learnt."""

ROWS_MAX: Final = 4_000_000
"""Rows of a segment that is learnt: its column and two more are held for that, some 50 MB."""

_ANYTHING: Final = Condition("actor", (Term("", is_prefix=True, is_negated=False),))
"""What every row meets, of a column that summaries have learnt."""

ROWS_AT_ONCE: Final = 250_000
"""Rows of small segments that are learnt at once: their texts meet a large dictionary together."""

WANTED_MAX: Final = 10_000
"""How many columns of segments may wait to be learnt."""


class ValueIndex:
    """The values of segments, read by way of `decoded`. Safe to use from several threads.

    They have a cache of their own: rows that somebody leafs through would drive them out.
    """

    def __init__(self, decoded: Decoded, bytes_max: int) -> None:
        self._decoded = decoded
        self.cache = ByteCache(bytes_max)
        self._wanted: dict[tuple[str, str], Segment] = {}
        self._lock = Lock()
        self._growing = Lock()
        self._is_closed = False

    def find(self, segment: Segment, column: str) -> tuple[bool, Values | None, Dictionary]:
        """Whether `column` of `segment` was learnt, what of it is known, and its dictionary.

        Nothing is known of a column with too many values, even when it was learnt.
        """
        is_known, values = self.cache.find(_values_key(segment, column))
        # After them, as it grows: what came later may lack what its segment was learnt with.
        dictionary = self._dictionary(segment.tenant_id, column)
        if values is not None and not values.are_of(dictionary):
            return False, None, dictionary
        return is_known, values, dictionary

    def knows(self, segment: Segment, column: str) -> bool:
        """True if there is nothing more to learn of `column`."""
        return self.find(segment, column)[0]

    def at_most(self, segment: Segment, query: Query) -> int | None:
        """See `Lookup.at_most`."""
        return Lookup(self, query).at_most(segment)

    def want(self, segments: Iterable[Segment], columns: Iterable[str]) -> None:
        """Let `learn` know what would have helped; newest days before others."""
        newest = self._as_many_as_fit(segments)
        for column in columns:
            for segment in newest:
                is_known = self.knows(segment, column)
                with self._lock:
                    if not is_known and len(self._wanted) < WANTED_MAX:
                        self._wanted[segment.segment_id, column] = segment

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
                column, segments = self._next_wanted()
                for segment in segments:
                    del self._wanted[segment.segment_id, column]
            self._learn(segments, column)

    def close(self) -> None:
        """End `learn`, soon."""
        self._is_closed = True

    def _as_many_as_fit(self, segments: Iterable[Segment]) -> list[Segment]:
        """The newest of `segments`, so many that half of the cache holds a column of them all.

        Else what is learnt last would drive out what was learnt first, again and again.
        """
        room = self.cache.bytes_max // 2
        fitting = []
        for segment in sorted(segments, key=lambda one: one.day, reverse=True):
            room -= ENTRY_BYTES + min(VALUES_BYTES_MAX, segment.rows * VALUE_BYTES)
            if room < 0:
                break
            fitting.append(segment)
        return fitting

    def _next_wanted(self) -> tuple[str, list[Segment]]:
        """A column that is wanted, and segments of one tenant to learn it of at a time.

        For the holder of the lock alone.
        """
        (_, column), first = next(iter(self._wanted.items()))
        some, rows = [first], first.rows
        for (_, name), segment in islice(self._wanted.items(), 1, None):
            rows += segment.rows
            if rows > ROWS_AT_ONCE or (name, segment.tenant_id) != (column, first.tenant_id):
                break
            some.append(segment)
        return column, some

    def _learn(self, segments: Sequence[Segment], column: str) -> None:
        found: list[tuple[Segment, Counted]] = []
        for segment in segments:
            try:
                counted = self._count(segment, column)
            except StoreFault:
                continue
            if counted is None:
                self.cache.keep(_values_key(segment, column), None, ENTRY_BYTES)
            else:
                found.append((segment, counted))
        if not found:
            return
        values = self._in_codes(segments[0].tenant_id, column, [counted for _, counted in found])
        if values is None and len(found) > 1:  # each alone: there may be room for some of them
            for segment, _ in found:
                self._learn([segment], column)
            return
        known: Sequence[Values | None] = values or [None]
        for (segment, _), one in zip(found, known, strict=True):
            size = ENTRY_BYTES + (one.size if one else 0)
            self.cache.keep(_values_key(segment, column), one, size)

    def _count(self, segment: Segment, column: str) -> Counted | None:
        """What is in the file, or None: too much."""
        if segment.rows > ROWS_MAX:
            return None
        groups = self._decoded.columns(segment, [column, *KIND_COLUMNS])
        return count_values(groups, column, VALUES_BYTES_MAX // VALUE_BYTES)

    def _in_codes(
        self, tenant_id: str, column: str, counted: Sequence[Counted]
    ) -> list[Values] | None:
        """`counted` in codes of the tenant's dictionary, which grows; None: it would be too big."""
        with self._growing:
            dictionary, values = in_codes(counted, self._dictionary(tenant_id, column))
            if dictionary.size > min(TEXTS_BYTES_MAX, self.cache.bytes_max // 4):
                return None
            key = _dictionary_key(tenant_id, column)
            self.cache.keep(key, dictionary, dictionary.size + ENTRY_BYTES)
        return values

    def _dictionary(self, tenant_id: str, column: str) -> Dictionary:
        found: Dictionary | None = self.cache.find(_dictionary_key(tenant_id, column))[1]
        # Forgotten, it is begun anew; values of the one before are then known to nobody.
        return found or new_dictionary()


class Lookup:
    """What `index` knows of `query`; texts are looked for once, not for each segment."""

    def __init__(self, index: ValueIndex, query: Query) -> None:
        self._index = index
        self._query = query
        self._alike: dict[Condition, tuple[Dictionary, Alike]] = {}

    def at_most(self, segment: Segment) -> int | None:
        """How many rows of `segment` may be in the query, or None: not known.

        Never too few; exactly as many as there are if no more is asked for than one condition on
        what was learnt, and any on event and decision.
        """
        bound: int | None = segment.rows
        for condition in learnable(self._query):
            rows = self.rows_alike(segment, condition, self._query.conditions)
            if rows == 0:
                return 0
            if rows is not None:
                bound = None if bound is None else min(bound, rows)
            elif not self._index.knows(segment, condition.column):
                bound = None
        return bound

    def rows_alike(
        self, segment: Segment, condition: Condition, others: Sequence[Condition]
    ) -> int | None:
        """How many rows meet `condition`, and those of `others` on KIND_COLUMNS; None: unknown."""
        found = self._found(segment, condition)
        if found is None:
            return None
        values, alike = found
        return sum(values.rows_alike(alike, kind) for kind in values.kinds if kind.meets(others))

    def by_kind(self, segment: Segment, watermark: int) -> dict[Kind, int] | None:
        """How many rows of each kind are in the query, up to `watermark`, or None: not known.

        Known if nothing decides which rows are in but event, decision and one learnt column.
        """
        conditions = self._query.conditions
        others = [one for one in conditions if one.column not in KIND_COLUMNS]
        if len(others) > 1 or not is_within(segment, self._query, watermark):
            return None
        found = self._found(segment, others[0] if others else _ANYTHING)
        if found is None:
            return None
        values, alike = found
        kinds = [kind for kind in values.kinds if kind.meets(conditions)]
        if not others:
            return {kind: kind.rows + kind.nulls for kind in kinds}
        nulls = others[0].is_met(None)
        return {
            kind: values.rows_alike(alike, kind) + (kind.nulls if nulls else 0) for kind in kinds
        }

    def _found(self, segment: Segment, condition: Condition) -> tuple[Values, Alike] | None:
        _, values, dictionary = self._index.find(segment, condition.column)
        if values is None:
            return None
        before, alike = self._alike.get(condition, (None, None))
        if alike is None or before is not dictionary:
            alike = dictionary.alike(condition)
            self._alike[condition] = dictionary, alike
        return values, alike


def learnable(query: Query) -> list[Condition]:
    """The conditions that a segment's values may rule out, and its catalog line does not."""
    return [one for one in query.conditions if one.wanted and one.column not in COUNTED_COLUMNS]


def _values_key(segment: Segment, column: str) -> Hashable:
    return ("values", segment.segment_id, column)


def _dictionary_key(tenant_id: str, column: str) -> Hashable:
    return ("dictionary", tenant_id, column)
