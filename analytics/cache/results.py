"""Rows once found stay found: who searches for a rare value looks at its rows more than once.

They page, filter further, sum up and export; the files have to be searched only the first time.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.filters import Condition
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment

FOUND_BYTES_MAX: Final = 2 * 2**20
"""What the rows found with the same conditions may take, decoded."""

SEGMENT_ID: Final = pa.field("segment_id", pa.string(), nullable=False)
FOUND_SCHEMA: Final = AUDIT_SCHEMA.append(SEGMENT_ID)
"""A row, and the segment that holds it."""

_NAME_BYTES: Final = 150
"""What the name of a segment takes in a set, roughly."""


@dataclass(frozen=True, slots=True)
class _Found:
    """All rows that the segments `names` have; FOUND_SCHEMA."""

    names: frozenset[str]
    rows: pa.Table

    @property
    def size(self) -> int:
        return int(self.rows.nbytes) + _NAME_BYTES * len(self.names) + 16 * ENTRY_BYTES

    def of(self, segments: Sequence[Segment]) -> "_Found":
        """The rows of these alone."""
        names = frozenset(segment.segment_id for segment in segments)
        if names == self.names:
            return self
        is_of = pc.is_in(self.rows["segment_id"], pa.array(names, pa.string()))
        return _Found(names, self.rows.filter(is_of))


_NOTHING: Final = _Found(frozenset(), FOUND_SCHEMA.empty_table())


def found_rows(
    cache: ByteCache,
    tenant_id: str,
    conditions: tuple[Condition, ...],
    segments: Sequence[Segment],
    search: Callable[[Sequence[Segment]], pa.Table],
) -> pa.Table:
    """All rows of `segments`, which are the tenant's, that meet `conditions`; in no order.

    AUDIT_SCHEMA. `search` finds those of segments that were not searched yet; FOUND_SCHEMA.
    """
    key: Hashable = ("found", tenant_id, conditions)
    asked = sum(ENTRY_BYTES + len(term.text) for one in conditions for term in one.terms)
    found: _Found = cache.find(key)[1] or _NOTHING
    unsearched = [segment for segment in segments if segment.segment_id not in found.names]
    if unsearched:
        rows = pa.concat_tables([found.rows, search(unsearched)]).combine_chunks()
        found = _Found(found.names | {one.segment_id for one in unsearched}, rows)
        kept = found if found.size <= FOUND_BYTES_MAX else found.of(segments)
        if kept.size <= FOUND_BYTES_MAX:
            cache.keep(key, kept, kept.size + asked)
    return found.of(segments).rows.drop_columns([SEGMENT_ID.name])
