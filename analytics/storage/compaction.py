"""Merging: many segments of one tenant-day become one, in bounded memory.

Each segment is sorted, and its row groups say up to which instant and `seq` they reach. So row
groups are read in that order, and of what has been read the rows before all that is still unread
have found their place. That holds, too, where many rows are of one instant: an import whose rows
have dates alone, or a client that sends nothing else.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import RowGroup, open_segment
from analytics.storage.segment_writer import newest_first, write_sorted


def merge_segments(root: Path, segments: Sequence[Segment], segment_id: str) -> Segment:
    """One new segment with the rows of `segments`, all of one tenant and day; see `write_sorted`.

    The files of `segments` stay as they are. Raises StoreFault if one cannot be read.
    """
    (tenant_id, day), *others = {(segment.tenant_id, segment.day) for segment in segments}
    if others:
        raise ValueError("only segments of one tenant and day can be merged")
    rows = merged_rows(root, segments)
    rows_expected = sum(segment.rows for segment in segments)
    return write_sorted(root, tenant_id, day, segment_id, rows, rows_expected=rows_expected)


def merged_rows(root: Path, segments: Sequence[Segment]) -> Iterator[pa.Table]:
    """All rows of `segments` as AUDIT_SCHEMA tables that follow each other newest first."""
    with ExitStack() as stack:
        files = [stack.enter_context(open_segment(root, segment)) for segment in segments]
        unread = sorted(
            ((group, file) for file in files for group in file.row_groups()),
            key=lambda pair: sort_key_bound(pair[0]),
        )
        held = AUDIT_SCHEMA.empty_table()
        while unread:
            group, file = unread.pop()
            held = newest_first(pa.concat_tables([held, file.rows(group.index)]))
            settled, held = _split(held, sort_key_bound(unread[-1][0]) if unread else None)
            if settled.num_rows:
                yield settled


def sort_key_bound(group: RowGroup) -> tuple[datetime, int]:
    """A place in the order that no row of `group` comes before."""
    return group.max_created_at, group.max_seq


def _split(rows: pa.Table, reach: tuple[datetime, int] | None) -> tuple[pa.Table, pa.Table]:
    """The rows that come before `reach` (None: all), and the others; `rows` are newest first."""
    if reach is None:
        return rows, rows.slice(rows.num_rows)
    at = rows.column("created_at")
    instant = pa.scalar(reach[0], at.type)
    is_settled = pc.or_(
        pc.greater(at, instant),
        pc.and_(pc.equal(at, instant), pc.greater(rows.column("seq"), reach[1])),
    )
    count = int(pc.sum(is_settled).as_py() or 0)
    return rows.slice(0, count), rows.slice(count)
