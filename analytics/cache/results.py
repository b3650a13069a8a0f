"""Cache of rows returned by selective queries.

An investigation looks at the few rows of a rare value several times: it pages, adds a filter, sums
up and exports. Segments never change, so the rows that were found in one stay the same.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.cache.lru import ENTRY_BYTES, ByteCache
from analytics.model.filters import Condition
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment

RESULT_BYTES_MAX: Final = 2 * 2**20
"""What the rows kept for the same conditions may take, decoded."""

SEGMENT_ID: Final = pa.field("segment_id", pa.string(), nullable=False)
_NAME_BYTES: Final = 150


@dataclass(frozen=True)
class CachedRows:
    """All rows that meet some conditions in the segments whose ids are `segment_ids`.

    `rows` are AUDIT_SCHEMA and SEGMENT_ID, in no order.
    """

    segment_ids: frozenset[str]
    rows: pa.Table

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return int(self.rows.nbytes) + _NAME_BYTES * len(self.segment_ids) + 16 * ENTRY_BYTES

    @cached_property
    def counts(self) -> Counter[str]:
        """How many of its rows each segment has."""
        counted = pc.value_counts(self.rows["segment_id"]).to_pylist()
        return Counter({line["values"]: line["counts"] for line in counted})

    def of(self, segments: Iterable[Segment]) -> "CachedRows":
        """The part of it that is of these segments."""
        wanted = frozenset(segment.segment_id for segment in segments)
        if wanted == self.segment_ids:
            return self
        is_wanted = pc.is_in(self.rows["segment_id"], pa.array(wanted, pa.string()))
        return CachedRows(wanted & self.segment_ids, self.rows.filter(is_wanted))

    def without_ids(self) -> pa.Table:
        """Its rows, AUDIT_SCHEMA."""
        return self.rows.drop_columns([SEGMENT_ID.name])


_NOTHING: Final = CachedRows(frozenset(), AUDIT_SCHEMA.append(SEGMENT_ID).empty_table())


class ResultCache:
    """Rows by tenant and conditions. Safe to use from several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._cache = ByteCache(bytes_max)

    def find(self, tenant_id: str, conditions: tuple[Condition, ...]) -> CachedRows:
        """What is known of the rows that meet `conditions`; without segments if nothing is."""
        known: CachedRows | None = self._cache.find((tenant_id, conditions))[1]
        return known or _NOTHING

    def add(
        self,
        tenant_id: str,
        conditions: tuple[Condition, ...],
        segment_ids: Iterable[str],
        rows: pa.Table | None = None,
    ) -> None:
        """Keep `rows` (None: there are none), all that meet `conditions` in these segments.

        Beside what is known already.
        """
        known, added = self.find(tenant_id, conditions), frozenset(segment_ids)
        joined = known.rows
        if rows is not None:
            # Two threads may have searched the same segment: its rows must not be there twice.
            is_double = pc.is_in(joined["segment_id"], pa.array(added, pa.string()))
            joined = pa.concat_tables([joined.filter(pc.invert(is_double)), rows]).combine_chunks()
        kept = CachedRows(known.segment_ids | added, joined)
        if kept.size > RESULT_BYTES_MAX:
            kept = CachedRows(added, _NOTHING.rows if rows is None else rows)
        if kept.size <= RESULT_BYTES_MAX:
            terms = sum(
                ENTRY_BYTES + len(term.text) for condition in conditions for term in condition.terms
            )
            self._cache.keep((tenant_id, conditions), kept, kept.size + terms)
