"""Values as numbers: the texts of one column of one tenant, and how often a segment has each.

Days resemble each other: a text is kept once for all of them, and a segment keeps its code.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.filters import Condition, condition_mask

KIND_COLUMNS: Final = ("event", "decision")
"""What a segment's values are counted apart by: most filters that are no search name these."""

BISECTED_MAX: Final = 64
"""Up to so many codes are looked up one by one, in each segment."""


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """Different texts; the code of each is its place.

    It grows by being replaced with one that begins with the same texts. `lineage` tells those that
    came of one another, in which a code means the same, from one that was begun anew.
    """

    lineage: object
    texts: pa.StringArray

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.texts.nbytes)

    def with_texts(self, texts: pa.StringArray) -> "tuple[Dictionary, pa.Int32Array]":
        """The dictionary grown by what it lacks of `texts`, and the code of each of these.

        Takes as long as the dictionary is large, however few `texts` are.
        """
        codes = pc.index_in(texts, value_set=self.texts)
        if codes.null_count == 0:
            return self, codes
        new = texts.filter(codes.is_null()).unique()
        grown = Dictionary(self.lineage, pa.concat_arrays([self.texts, new]))
        return grown, pc.index_in(texts, value_set=grown.texts)

    def alike(self, condition: Condition) -> "Alike":
        """The texts that meet `condition`."""
        is_alike = condition_mask(condition, self.texts)
        codes = pc.indices_nonzero(is_alike)
        return Alike(is_alike, codes.to_pylist() if len(codes) <= BISECTED_MAX else None)


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Some codes of a dictionary: true at the place of each, and listed unless they are many."""

    is_alike: pa.BooleanArray
    codes: list[int] | None


def new_dictionary() -> Dictionary:
    """One without texts, the first of its lineage."""
    return Dictionary(object(), pa.array([], pa.string()))


@dataclass(frozen=True, slots=True)
class Kind:
    """An event and decision that rows of a segment have.

    `rows` of them have a value, which `Values` counts from `start` to `stop`; `nulls` have none.
    """

    event: str | None
    decision: str | None
    start: int
    stop: int
    rows: int
    nulls: int

    def meets(self, conditions: Iterable[Condition]) -> bool:
        """Whether these rows meet those of `conditions` that are on KIND_COLUMNS."""
        return all(
            one.is_met(self.event if one.column == "event" else self.decision)
            for one in conditions
            if one.column in KIND_COLUMNS
        )


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """How many rows of one segment have each value of one column, by kind. Null is no value.

    `codes` ascend within a kind and begin where their buffer does. They are those of any dictionary
    of `lineage` with at least `reach` texts.
    """

    lineage: object
    reach: int
    kinds: tuple[Kind, ...]
    codes: pa.Int32Array
    counts: pa.Int32Array

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.codes.nbytes + self.counts.nbytes)

    def are_of(self, dictionary: Dictionary) -> bool:
        """True if `dictionary` says what the codes mean."""
        return dictionary.lineage is self.lineage and self.reach <= len(dictionary.texts)

    def rows_alike(self, alike: Alike, kind: Kind) -> int:
        """How many rows of `kind` have a value of `alike`."""
        if alike.codes is None:
            held = self.codes[kind.start : kind.stop]
            counts = self.counts[kind.start : kind.stop].filter(alike.is_alike.take(held))
            return int(pc.sum(counts).as_py() or 0)
        # A view of Arrow's own memory: to get each number out as an object would take longer.
        view: Sequence[int] = memoryview(self.codes.buffers()[1]).cast("i")
        rows = 0
        for code in alike.codes:
            place = bisect_left(view, code, kind.start, kind.stop)
            if place < kind.stop and view[place] == code:
                rows += self.counts[place].as_py()
        return rows

    def of_kinds(self, conditions: Iterable[Condition]) -> list[tuple[pa.Array, pa.Array]]:
        """Codes and their counts, of each kind that meets `conditions`."""
        return [
            (self.codes[kind.start : kind.stop], self.counts[kind.start : kind.stop])
            for kind in self.kinds
            if kind.meets(conditions)
        ]
