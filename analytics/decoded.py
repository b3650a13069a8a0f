"""Rows kept decoded: batches and row groups never change, so their Arrow tables may stay."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from analytics.batches import JournalBatch, decode_batch
from analytics.byte_cache import ENTRY_BYTES, ByteCache
from analytics.schema import AUDIT_SCHEMA
from analytics.segment_files import RowGroup, open_segment
from analytics.segments import Segment


class Decoded:
    """The rows of batches and of segments below `root`. Every method may raise StoreFault."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        self._root = root
        self.cache = ByteCache(bytes_max)

    def journal(self, batches: Iterable[JournalBatch]) -> pa.Table:
        """The rows of all `batches` in the order given."""
        return pa.concat_tables([AUDIT_SCHEMA.empty_table(), *map(self._batch, batches)])

    def row_groups(self, segment: Segment) -> tuple[RowGroup, ...]:
        """The segment's row groups, in the file's order: newest first."""

        def read() -> tuple[tuple[RowGroup, ...], int]:
            with open_segment(self._root, segment) as file:
                groups = file.row_groups()
            return groups, ENTRY_BYTES * (1 + len(groups))

        found: tuple[RowGroup, ...] = self.cache.get(("groups", segment.segment_id), read)
        return found

    def rows(self, segment: Segment, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""

        def read() -> tuple[pa.Table, int]:
            with open_segment(self._root, segment) as file:
                rows = file.rows(index)
            return rows, rows.nbytes + ENTRY_BYTES

        return self.cache.get(_rows_key(segment, index), read)

    def holds(self, segment: Segment, index: int) -> bool:
        """True if this row group's rows are there without reading the file."""
        return _rows_key(segment, index) in self.cache

    def columns(self, segment: Segment, names: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of text as dictionaries, a row group at a time; they are not kept."""
        with open_segment(self._root, segment, names) as file:
            for index in range(file.row_group_count):
                yield file.columns(index, names)

    def _batch(self, batch: JournalBatch) -> pa.Table:
        def decode() -> tuple[pa.Table, int]:
            rows = decode_batch(batch)
            return rows, rows.nbytes + ENTRY_BYTES

        # A seq is given out once, so the first one names a batch among all tenants.
        return self.cache.get(("batch", batch.first_seq), decode)


def _rows_key(segment: Segment, index: int) -> Hashable:
    return ("rows", segment.segment_id, index)
