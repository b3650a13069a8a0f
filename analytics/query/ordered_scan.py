"""A day's rows as its files have them, where these are in order: no engine, and no sorting.

Segments are sorted. Where no two of a day overlap in time, and nothing of it is in the journal,
their row groups follow each other as the rows of an export do.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.filters import Order, Query, mask
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query.engine import STREAM_BATCH_ROWS
from analytics.query.scans import Resources
from analytics.statistics.zone_maps import is_within
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import ENCODED_SCHEMA, SegmentFile, open_segment
from analytics.storage.segment_writer import TEXT_DICTIONARIES, by_rows
from analytics.storage.snapshot import Snapshot

_SEQ: Final = AUDIT_SCHEMA.field("seq").type


def are_disjoint(segments: Iterable[Segment]) -> bool:
    """True if no two of `segments` overlap in time; not even in an instant, where seq decides."""
    newest_first = sorted(segments, key=lambda segment: segment.max_created_at, reverse=True)
    return all(
        older.max_created_at < newer.min_created_at for newer, older in pairwise(newest_first)
    )


@dataclass(frozen=True, slots=True)
class OrderedScan:
    """The rows of the query in the segments of `part`, which `are_disjoint`, in its order."""

    part: Snapshot
    query: Query

    def stream(self, resources: Resources) -> Iterator[pa.Table]:
        """ENCODED_SCHEMA, STREAM_BATCH_ROWS rows a table but for the last.

        Raises StoreFault, and QueryStopped once it is cancelled.
        """
        rows = _row_groups(resources, self.part.segments, self.query, self.part.watermark)
        return by_rows(rows, STREAM_BATCH_ROWS)


def _row_groups(
    resources: Resources, segments: Sequence[Segment], query: Query, watermark: int
) -> Iterator[pa.Table]:
    root, stop = resources.segments.root, resources.cancellation
    is_newest_first = query.order is Order.NEWEST_FIRST
    for segment in sorted(
        segments, key=lambda segment: segment.max_created_at, reverse=is_newest_first
    ):
        is_whole = not query.conditions and is_within(segment, query, watermark)
        with resources.local([segment]), open_segment(root, segment, TEXT_DICTIONARIES) as file:
            places = range(file.row_group_count)
            for index in places if is_newest_first else reversed(places):
                if stop is not None:
                    stop.check()
                rows = (
                    file.encoded_rows(index)
                    if is_whole
                    else _matching(file, index, query, watermark)
                )
                yield rows if is_newest_first else _reversed(rows)


def _matching(file: SegmentFile, index: int, query: Query, watermark: int) -> pa.Table:
    """The rows of a row group that are in `query`; if none is, only a few columns are read."""
    names = {condition.column for condition in query.conditions}
    looked_at = file.some_columns(index, {"created_at", *names})
    is_old = pc.less_equal(looked_at["seq"], pa.scalar(watermark, _SEQ))
    wanted = pc.and_(mask(query, looked_at), is_old)
    count = pc.sum(wanted).as_py() or 0
    if not count:
        return ENCODED_SCHEMA.empty_table()
    rows = file.encoded_rows(index)
    return rows if count == rows.num_rows else rows.filter(wanted)


def _reversed(rows: pa.Table) -> pa.Table:
    return rows.take(pa.arange(rows.num_rows - 1, -1, -1))
