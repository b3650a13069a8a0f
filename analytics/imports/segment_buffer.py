"""Turns the rows of a file into segments: gathered by day, in bounded memory, numbered from 0."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from typing import Final

import pyarrow as pa

from analytics.imports.chunks import Chunk
from analytics.imports.validation import Refused, RowImporter
from analytics.model.instants import utc_day
from analytics.model.rows import AuditRow
from analytics.model.schema import AUDIT_SCHEMA, to_table
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import Claim
from analytics.storage.segment_writer import NewSegment

GATHERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Rows that wait in memory for others of their day; above it, the largest days are written."""

WRITTEN_TOGETHER: Final = 32
"""Files that get their names at once, see `write_segments`. More were no quicker."""


@dataclass(slots=True)
class _Day:
    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0


@dataclass(eq=False)
class SegmentBuffer:
    """Takes rows in any order and writes them as segments, a few large ones for each day.

    Rows count from 0 in the order in which they come: their place among all rows is settled by
    the commit that names the segments (see `Segment.with_seq_base`). No reader sees them before.
    They are stored under `claim`.
    """

    _claim: Claim
    _tenant_id: str
    _new_segment_id: Callable[[], str]
    bytes_max: int = GATHERED_BYTES_MAX
    _days: dict[date, _Day] = field(init=False, default_factory=dict)
    _size: int = field(init=False, default=0)
    rows: int = field(init=False, default=0)
    segments: list[Segment] = field(init=False, default_factory=list)
    """What has been written so far, durable, and not yet named by the catalog."""

    def add(self, rows: Sequence[AuditRow]) -> None:
        """Take `rows`; write some days when there are too many to hold."""
        if not rows:
            return
        seq = pa.array(range(self.rows, self.rows + len(rows)), pa.int64())
        table = to_table(rows).add_column(0, AUDIT_SCHEMA.field("seq"), seq)
        self.rows += len(rows)
        for day, places in _places_by_day(rows).items():
            # Copied even if all rows are meant: a slice would keep the whole table alive.
            part = table.take(pa.array(places, pa.int64()))
            held = self._days.setdefault(day, _Day())
            held.tables.append(part)
            held.size += part.nbytes
            self._size += part.nbytes
        if self._size > self.bytes_max:
            # Down to half: otherwise the next rows would exceed the limit again, for tiny files.
            self._write_down_to(self.bytes_max // 2)

    def finish(self) -> None:
        """Write the rows that are still in memory."""
        self._write_down_to(0)

    def discard(self) -> None:
        """Discard all rows, and remove what was written: no catalog names it."""
        self._days.clear()
        self._size = self.rows = 0
        self._claim.remove(self.segments)
        self.segments.clear()

    def _write_down_to(self, size: int) -> None:
        days = self._largest_down_to(size)
        while together := list(islice(days, WRITTEN_TOGETHER)):
            self.segments += self._claim.put_rows(together)

    def _largest_down_to(self, size: int) -> Iterator[NewSegment]:
        """Take the largest days out of memory until `size` bytes are left."""
        for day in sorted(self._days, key=lambda day: self._days[day].size, reverse=True):
            if self._size <= size:
                return
            held = self._days.pop(day)
            self._size -= held.size
            rows = pa.concat_tables(held.tables)
            yield NewSegment(self._tenant_id, day, self._new_segment_id(), rows)


def _places_by_day(rows: Sequence[AuditRow]) -> dict[date, list[int]]:
    places: dict[date, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(utc_day(row.created_at), []).append(place)
    return places


@dataclass(frozen=True, slots=True)
class ImportStep:
    """The progress of an import: bytes read so far, and rows refused since the last step."""

    position: int
    refused: list[Refused]


def import_steps(
    chunks: Iterable[Chunk],
    row_importer: RowImporter,
    segment_buffer: SegmentBuffer,
    *,
    is_partial: bool,
) -> Iterator[ImportStep]:
    """Gather the rows of a file, a chunk at a time; at the end all of them are in segments.

    Once a row was refused no other is kept, unless `is_partial`; all are checked nevertheless.
    Raises UnreadableFile midway. A caller that does not commit the result discards it.
    """
    is_kept = True
    for chunk in chunks:
        rows, refused = row_importer.rows(chunk.entries)
        if refused and is_kept and not is_partial:
            is_kept = False
            segment_buffer.discard()
        if is_kept:
            segment_buffer.add(rows)
        yield ImportStep(chunk.position, refused)
    segment_buffer.finish()
