"""Reading segment files row group by row group, with their rows as the catalog means them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.model.errors import ARROW_FAULTS, StoreFault
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import TEXT_DICTIONARIES

_CREATED_AT: Final = AUDIT_SCHEMA.get_field_index("created_at")
_SEQ: Final = AUDIT_SCHEMA.get_field_index("seq")

ENCODED_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string()))
        if field.name in TEXT_DICTIONARIES
        else field
        for field in AUDIT_SCHEMA
    ]
)
"""AUDIT_SCHEMA as its columns lie in files."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group's place in its file, and the instants its rows lie between, both inclusive.

    It has `rows` rows; none of them has a higher `seq` than `max_seq`.
    """

    index: int
    rows: int
    min_created_at: datetime
    max_created_at: datetime
    max_seq: int


class SegmentFile:
    """One open file. Its methods may raise StoreFault."""

    def __init__(self, path: Path, file: pq.ParquetFile, segment: Segment) -> None:
        self.path = path
        self.file = file
        self.segment = segment

    def row_groups(self) -> tuple[RowGroup, ...]:
        """Its row groups in the file's order: newest first."""
        with _faults(self.path):
            return tuple(map(self._row_group, range(self.row_group_count)))

    def rows(self, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""
        return self._read(index, AUDIT_SCHEMA)

    def encoded_rows(self, index: int) -> pa.Table:
        """The same with what the file has as dictionaries left so; ENCODED_SCHEMA."""
        return self._read(index, ENCODED_SCHEMA)

    def some_columns(self, index: int, names: Collection[str]) -> pa.Table:
        """The rows with `seq` and the columns of these `names` only, in AUDIT_SCHEMA's order."""
        wanted = {"seq", *names}
        return self._read(index, pa.schema([one for one in AUDIT_SCHEMA if one.name in wanted]))

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return int(self.file.metadata.num_row_groups)

    def columns(self, index: int, names: Sequence[str]) -> pa.Table:
        """Some columns of one row group; not `seq`, which has a base."""
        with _faults(self.path):
            rows = self.file.read_row_group(index, columns=list(names)).select(names)
            rows.validate(full=True)
        return rows.combine_chunks()

    def _read(self, index: int, schema: pa.Schema) -> pa.Table:
        """The columns of `schema`, `seq` as the first of them."""
        with _faults(self.path):
            rows = self.file.read_row_group(index, columns=schema.names).cast(schema)
            rows.validate(full=True)
        if self.segment.seq_base:
            seq = pc.add(rows.column(_SEQ), self.segment.seq_base)
            rows = rows.set_column(_SEQ, AUDIT_SCHEMA.field(_SEQ), seq)
        return rows

    def _row_group(self, index: int) -> RowGroup:
        group = self.file.metadata.row_group(index)
        at, seq = (group.column(column).statistics for column in (_CREATED_AT, _SEQ))
        if not all(one is not None and one.has_min_max for one in (at, seq)):
            whole = self.segment
            bounds = whole.min_created_at, whole.max_created_at, whole.max_seq
        else:
            bounds = at.min, at.max, self.segment.seq_base + seq.max
        return RowGroup(index, group.num_rows, *bounds)


@contextmanager
def open_segment(
    root: Path, segment: Segment, dictionaries: Iterable[str] = ()
) -> Iterator[SegmentFile]:
    """The file of `segment` below the audit folder `root`. Raises StoreFault.

    The columns `dictionaries` are not taken apart, as far as they are TEXT_DICTIONARIES.
    """
    path = segment.path(root)
    stored = [name for name in dictionaries if name in TEXT_DICTIONARIES]
    with _faults(path):
        file = pq.ParquetFile(path, read_dictionary=stored)
    with file:
        yield SegmentFile(path, file, segment)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """What pyarrow says of a damaged or missing file, as a StoreFault that names it."""
    try:
        yield
    except ARROW_FAULTS as error:
        raise StoreFault(f"{path}: {error}") from error
