"""Rows kept decoded: journal batches and row groups never change, so their Arrow tables may stay.

Least recently used goes first once the bound is reached. Safe to use from several threads.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from analytics.batches import JournalBatch, decode_batch
from analytics.schema import AUDIT_SCHEMA
from analytics.segment_files import RowGroup, open_segment
from analytics.segments import Segment

_ENTRY_BYTES: Final = 512
"""What an entry takes besides its rows, roughly: small batches must not be free."""


class ByteCache:
    """Values by key, together at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._entries

    def find(self, key: Hashable) -> tuple[bool, Any]:
        """Whether `key` is there, and its value (else None)."""
        with self._lock:
            if key not in self._entries:
                return False, None
            self._entries.move_to_end(key)
            return True, self._entries[key][0]

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:  # noqa: ANN401 - of any type
        """The value of `key`; if it is not there `make` gives it, with its size in bytes."""
        is_known, value = self.find(key)
        if not is_known:
            value, size = make()  # unlocked: two threads may make the same, and none waits
            self.keep(key, value, size)
        return value

    def keep(self, key: Hashable, value: object, size: int) -> None:
        """Hold `value`, of `size` bytes, until there is no more room for it."""
        if size > self.bytes_max:
            return
        with self._lock:
            if key not in self._entries:
                self._entries[key] = (value, size)
                self.size += size
            while self.size > self.bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self.size -= freed


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
            return groups, _ENTRY_BYTES * (1 + len(groups))

        found: tuple[RowGroup, ...] = self.cache.get(("groups", segment.segment_id), read)
        return found

    def rows(self, segment: Segment, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""

        def read() -> tuple[pa.Table, int]:
            with open_segment(self._root, segment) as file:
                rows = file.rows(index)
            return rows, rows.nbytes + _ENTRY_BYTES

        return self.cache.get(_rows_key(segment, index), read)

    def holds(self, segment: Segment, index: int) -> bool:
        """True if this row group's rows are there without reading the file."""
        return _rows_key(segment, index) in self.cache

    def column(self, segment: Segment, name: str) -> Iterator[pa.Array]:
        """The values of one column, a row group at a time; they are not kept."""
        with open_segment(self._root, segment) as file:
            for index in range(file.row_group_count):
                yield file.column(index, name)

    def _batch(self, batch: JournalBatch) -> pa.Table:
        def decode() -> tuple[pa.Table, int]:
            rows = decode_batch(batch)
            return rows, rows.nbytes + _ENTRY_BYTES

        # A seq is given out once, so the first one names a batch among all tenants.
        return self.cache.get(("batch", batch.first_seq), decode)


def _rows_key(segment: Segment, index: int) -> Hashable:
    return ("rows", segment.segment_id, index)
