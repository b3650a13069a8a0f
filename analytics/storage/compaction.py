"""Merging: many segments of one tenant-day become one, in bounded memory.

Each file is sorted, so all of them are read from their newest row on, a part of a row group at a
time. Rows that come before every unread row can be written.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import SegmentFile, open_segment
from analytics.storage.segment_writer import newest_first, write_sorted

MERGE_BYTES_MAX: Final = 256 * 2**20
"""About the most memory that a merge takes. A quarter of it holds rows that are read and not yet
written; sorting them takes twice that, and the last quarter holds the row group being written."""

HELD_BYTES_MAX: Final = MERGE_BYTES_MAX // 4

_END: Final = (-(2**63), -(2**63))
"""A place in the order that every row comes before."""


class MergeTooLarge(Exception):
    """A merge of these segments would take more memory than it may: merge fewer at a time."""


def merge_segments(
    root: Path, segments: Sequence[Segment], segment_id: str, into: Path | None = None
) -> Segment:
    """One new segment with the rows of `segments`, all of one tenant and day; see `write_sorted`.

    It is written below `into` (None: `root`). The files of `segments` stay as they are. Raises
    StoreFault if one cannot be read, and MergeTooLarge unless there are just two of them.
    """
    (tenant_id, day), *others = {(segment.tenant_id, segment.day) for segment in segments}
    if others:
        # The new file lies in one tenant's folder: rows of another would be served to that tenant.
        raise ValueError("only segments of one tenant and day can be merged")
    rows = merged_rows(root, segments)
    rows_expected = sum(segment.rows for segment in segments)
    return write_sorted(into or root, tenant_id, day, segment_id, rows, rows_expected=rows_expected)


def merged_rows(root: Path, segments: Sequence[Segment]) -> Iterator[pa.Table]:
    """All rows of `segments` as AUDIT_SCHEMA tables that follow each other newest first."""
    with ExitStack() as stack:
        cursors = [
            _Cursor(stack.enter_context(open_segment(root, segment, is_streamed=True)))
            for segment in segments
        ]
        unread = list(cursors)
        while unread:
            newest = max(unread, key=lambda cursor: cursor.bound)
            if _size(cursors) > HELD_BYTES_MAX:
                # No unread row comes before the highest bound, so the rows up to it are final.
                yield from _settle(cursors, newest.bound)
                # Of two files there is a batch each at most, and no merge takes fewer.
                if len(cursors) > 2 and _size(cursors) > HELD_BYTES_MAX:
                    raise MergeTooLarge
            if not newest.advance():
                unread.remove(newest)
        yield from _settle(cursors, _END)


@dataclass(slots=True)
class _Batch:
    """Rows still held, and the bytes of the whole batch in which they were read."""

    rows: pa.Table
    size: int


class _Cursor:
    """A file that is being merged: none of its unread rows comes before `bound`."""

    def __init__(self, file: SegmentFile) -> None:
        self._batches = file.batches()
        self._held: deque[_Batch] = deque()
        self._held_bytes = self._reader_bytes = 0
        self._reader_bytes_max = file.reader_bytes()
        segment = file.segment
        instant = pa.scalar(segment.max_created_at, AUDIT_SCHEMA.field("created_at").type)
        # Each part is the highest of all rows on its own, so no row comes before the pair.
        self.bound: tuple[int, int] = (instant.value, segment.max_seq)

    @property
    def size(self) -> int:
        """The bytes in memory: the rows held, and the reader's buffers."""
        return self._held_bytes + self._reader_bytes

    def advance(self) -> bool:
        """Read more rows and hold them; False if there are none left."""
        rows = next(self._batches, None)
        if rows is None:
            self._reader_bytes = 0
            return False
        self._reader_bytes = self._reader_bytes_max
        self._held.append(_Batch(rows, rows.nbytes))
        self._held_bytes += rows.nbytes
        self.bound = _place(rows, rows.num_rows - 1)
        return True

    def take_until(self, bound: tuple[int, int]) -> Iterator[pa.Table]:
        """Release the held rows that do not come after `bound`."""
        while self._held:
            batch = self._held[0]
            count = _count_until(bound, batch.rows)
            if count:
                yield batch.rows.slice(0, count)
            if count < batch.rows.num_rows:
                batch.rows = batch.rows.slice(count)
                return
            self._held.popleft()
            # A slice keeps the memory of its whole batch, so that is free with the last row only.
            self._held_bytes -= batch.size


def _settle(cursors: Sequence[_Cursor], bound: tuple[int, int]) -> list[pa.Table]:
    """The rows that `cursors` held up to `bound`, newest first, as one table or none."""
    parts = [rows for cursor in cursors for rows in cursor.take_until(bound)]
    return [newest_first(pa.concat_tables(parts))] if parts else []


def _size(cursors: Sequence[_Cursor]) -> int:
    return sum(cursor.size for cursor in cursors)


def _place(rows: pa.Table, row: int) -> tuple[int, int]:
    """Where a row stands in the order of all rows: what is higher comes before."""
    return rows.column("created_at")[row].value, rows.column("seq")[row].as_py()


def _count_until(bound: tuple[int, int], rows: pa.Table) -> int:
    """How many of `rows`, which are newest first, do not come after `bound`."""
    return bisect_left(range(rows.num_rows), 1, key=lambda row: int(_place(rows, row) < bound))
