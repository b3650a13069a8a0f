"""Rows kept decoded: journal batches and row groups never change, so their Arrow tables may stay.

Least recently used goes first once the bound is reached. Safe to use from several threads.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.batches import JournalBatch, decode_batch
from analytics.faults import StoreFault
from analytics.schema import AUDIT_SCHEMA
from analytics.segments import Segment

_CREATED_AT: Final = AUDIT_SCHEMA.get_field_index("created_at")
_ENTRY_BYTES: Final = 512
"""What an entry takes besides its rows, roughly: small batches must not be free."""

# What pyarrow raises on damaged bytes; its own exceptions derive from several built-in ones.
_FAULTS: Final = (pa.ArrowException, OSError, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group's place in its file, and the instants its rows lie between, both inclusive."""

    index: int
    min_created_at: datetime
    max_created_at: datetime


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
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
        value, size = make()  # unlocked: two threads may make the same, and none waits
        if size > self.bytes_max:
            return value
        with self._lock:
            if key not in self._entries:
                self._entries[key] = (value, size)
                self.size += size
            while self.size > self.bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self.size -= freed
        return value


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
            path = segment.path(self._root)
            with _faults(path), pq.ParquetFile(path) as file:
                groups = tuple(
                    _row_group(file.metadata, index, segment)
                    for index in range(file.metadata.num_row_groups)
                )
            return groups, _ENTRY_BYTES * (1 + len(groups))

        found: tuple[RowGroup, ...] = self.cache.get(("groups", segment.segment_id), read)
        return found

    def rows(self, segment: Segment, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""

        def read() -> tuple[pa.Table, int]:
            path = segment.path(self._root)
            with _faults(path), pq.ParquetFile(path) as file:
                rows = file.read_row_group(index, columns=AUDIT_SCHEMA.names).cast(AUDIT_SCHEMA)
                rows.validate(full=True)
            return rows, rows.nbytes + _ENTRY_BYTES

        return self.cache.get(_rows_key(segment, index), read)

    def holds(self, segment: Segment, index: int) -> bool:
        """True if this row group's rows are there without reading the file."""
        return _rows_key(segment, index) in self.cache

    def column(self, segment: Segment, name: str) -> Iterator[pa.Array]:
        """The values of one column, a row group at a time; they are not kept."""
        path = segment.path(self._root)
        with _faults(path), pq.ParquetFile(path) as file:
            for index in range(file.metadata.num_row_groups):
                values = file.read_row_group(index, columns=[name]).column(name)
                values.validate(full=True)
                yield values.combine_chunks()

    def _batch(self, batch: JournalBatch) -> pa.Table:
        def decode() -> tuple[pa.Table, int]:
            rows = decode_batch(batch)
            return rows, rows.nbytes + _ENTRY_BYTES

        # A seq is given out once, so the first one names a batch among all tenants.
        return self.cache.get(("batch", batch.first_seq), decode)


def _rows_key(segment: Segment, index: int) -> Hashable:
    return ("rows", segment.segment_id, index)


def _row_group(metadata: pq.FileMetaData, index: int, segment: Segment) -> RowGroup:
    statistics = metadata.row_group(index).column(_CREATED_AT).statistics
    if statistics is None or not statistics.has_min_max:
        return RowGroup(index, segment.min_created_at, segment.max_created_at)
    return RowGroup(index, statistics.min, statistics.max)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """What pyarrow says of a damaged or missing file, as a StoreFault that names it."""
    try:
        yield
    except _FAULTS as error:
        raise StoreFault(f"{path}: {error}") from error
