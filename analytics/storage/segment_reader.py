"""Reading segment files row group by row group, their rows numbered as the catalog says."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.model.errors import ARROW_FAULTS, StoreFault
from analytics.model.schema import AUDIT_SCHEMA, schema_of, with_nulls, with_received_at
from analytics.storage.segment_metadata import VERSION_KEY, Segment, owner_metadata
from analytics.storage.segment_writer import TEXT_DICTIONARIES
from analytics.storage.verified_files import REMEDY, DamagedFile

_CREATED_AT: Final = AUDIT_SCHEMA.get_field_index("created_at")
_SEQ: Final = AUDIT_SCHEMA.get_field_index("seq")

BATCHES_PER_GROUP: Final = 64
BATCH_ROWS_MIN: Final = 256
"""How small a part of a row group `SegmentFile.batches` decodes at a time: about half a MiB of a
full one. For fewer rows than this the call would cost more than the reading."""

PART_ROWS: Final = 4_096
"""How many rows are decoded at a time of a row group that is not read to its end."""

COLUMN_READER_BYTES: Final = 4 * 2**20
"""About the most memory that the reader of a column takes: its dictionary as it lies in the file
and decoded, and the same of a page; the writer begins another page at 1 MiB."""

STREAM_BUFFER_BYTES: Final = 64 * 2**10

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
    """A row group's place in its file, its number of rows, and the instants they lie between.

    Both instants are inclusive.
    """

    index: int
    rows: int
    min_created_at: datetime
    max_created_at: datetime


class OtherSchema(StoreFault):
    """A file whose columns are not those that the catalog says it has."""


class OtherSegment(DamagedFile):
    """The file of another segment."""


class SegmentFile:
    """One open file. Its methods may raise StoreFault.

    `schema` has the columns of the file; where it lacks later ones, rows have null.
    """

    def __init__(self, path: Path, file: pq.ParquetFile, segment: Segment) -> None:
        self.path = path
        self.file = file
        self.segment = segment
        self.schema = schema_of(segment.schema_version, str(path))

    def row_groups(self) -> tuple[RowGroup, ...]:
        """Its row groups in the file's order: newest first."""
        with _faults(self.path):
            return tuple(map(self._row_group, range(self.row_group_count)))

    def rows(self, index: int) -> pa.Table:
        """The rows of one row group, AUDIT_SCHEMA, newest first."""
        return self._read(index, AUDIT_SCHEMA)

    def rows_around(self, index: int, first: int, end: int) -> pa.Table:
        """A part of one row group with all its rows whose seq is from `first` to before `end`.

        Rows behind that part are not read, and those before it are not checked.
        """
        seq = self.some_columns(index, ()).column("seq")
        places = pc.indices_nonzero(pc.and_(pc.greater_equal(seq, first), pc.less(seq, end)))
        if not len(places):
            return AUDIT_SCHEMA.empty_table()
        start, stop = places[0].as_py(), places[-1].as_py() + 1
        if stop - start > len(seq) // 2:
            return self.rows(index)
        parts: list[pa.RecordBatch] = []
        at = 0
        for batch in self._group_batches(index, PART_ROWS):
            skipped = max(start - at, 0)
            if skipped < batch.num_rows:
                parts.append(batch.slice(skipped, stop - at - skipped))
            at += batch.num_rows
            if at >= stop:
                break
        return self._rows(pa.Table.from_batches(parts), AUDIT_SCHEMA)

    def encoded_rows(self, index: int) -> pa.Table:
        """The same rows; columns that the file has as dictionaries stay so. ENCODED_SCHEMA."""
        return self._read(index, ENCODED_SCHEMA)

    def batches(self) -> Iterator[pa.Table]:
        """All rows, AUDIT_SCHEMA, newest first, a small part of a row group at a time."""
        for index in range(self.row_group_count):
            with _faults(self.path):
                rows = self.file.metadata.row_group(index).num_rows
            for batch in self._group_batches(index, max(BATCH_ROWS_MIN, rows // BATCHES_PER_GROUP)):
                yield self._rows(pa.Table.from_batches([batch]), AUDIT_SCHEMA)

    def reader_bytes(self) -> int:
        """About what `batches` takes at most besides the rows it yields."""
        with _faults(self.path):
            groups = map(self.file.metadata.row_group, range(self.row_group_count))
            return max(map(_reader_bytes, groups), default=0)

    def some_columns(self, index: int, names: Collection[str]) -> pa.Table:
        """The rows with `seq` and the columns of these `names` only, in AUDIT_SCHEMA's order."""
        return self._read(index, _part(AUDIT_SCHEMA, {"seq", *names}))

    def seq_bounds(self, index: int) -> tuple[int, int]:
        """Between which seqs, inclusive, those of a row group's rows lie."""
        with _faults(self.path):
            seq = self.file.metadata.row_group(index).column(_SEQ).statistics
        if seq is None or not seq.has_min_max:
            return self.segment.min_seq, self.segment.max_seq
        base = self.segment.seq_base
        return seq.min + base, seq.max + base

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return int(self.file.metadata.num_row_groups)

    def _group_batches(self, index: int, size: int) -> Iterator[pa.RecordBatch]:
        """The rows of one row group as they are in the file, `size` at a time."""
        with _faults(self.path):
            batches = self.file.iter_batches(
                size,
                row_groups=[index],
                columns=_part(AUDIT_SCHEMA, self.schema.names).names,
                use_threads=False,
            )
        while True:
            with _faults(self.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _read(self, index: int, schema: pa.Schema) -> pa.Table:
        """The columns of `schema`, `seq` as the first of them."""
        with _faults(self.path):
            rows = self.file.read_row_group(index, columns=_part(schema, self.schema.names).names)
        return self._rows(rows, schema)

    def _rows(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows of the file as the catalog means them."""
        with _faults(self.path):
            rows = rows.cast(_part(schema, self.schema.names))
            # Damaged bytes can decode to offsets outside their buffers: to follow one is a crash.
            rows.validate(full=True)
        rows = with_nulls(rows, schema)
        if self.segment.seq_base:
            seq = pc.add(rows.column(_SEQ), self.segment.seq_base)
            rows = rows.set_column(_SEQ, AUDIT_SCHEMA.field(_SEQ), seq)
        if self.segment.received_at is not None:
            rows = with_received_at(rows, self.segment.received_at)
        return rows

    def _row_group(self, index: int) -> RowGroup:
        group = self.file.metadata.row_group(index)
        at = group.column(_CREATED_AT).statistics
        if at is None or not at.has_min_max:
            # Bounds may be too wide, which costs a read. Too narrow ones would hide rows.
            bounds = self.segment.min_created_at, self.segment.max_created_at
        else:
            bounds = at.min, at.max
        return RowGroup(index, group.num_rows, *bounds)


def _reader_bytes(group: pq.RowGroupMetaData) -> int:
    columns = map(group.column, range(group.num_columns))
    return sum(min(column.total_uncompressed_size, COLUMN_READER_BYTES) for column in columns)


def check_present(root: Path, segments: Iterable[Segment]) -> None:
    """Raise StoreFault unless the file of each of `segments` is there, with its size."""
    for segment in segments:
        path = segment.path(root)
        with _faults(path):
            size = path.stat().st_size
        if size != segment.size:
            raise StoreFault(f"{path}: {size} bytes instead of {segment.size}")


@contextmanager
def open_segment(
    root: Path, segment: Segment, dictionaries: Iterable[str] = (), *, is_streamed: bool = False
) -> Iterator[SegmentFile]:
    """The file of `segment` below the audit folder `root`. Raises StoreFault.

    Those of the columns `dictionaries` that are TEXT_DICTIONARIES stay dictionaries.
    With `is_streamed` its bytes are read as `batches` needs them, else a column at a time.
    """
    path = segment.path(root)
    held = schema_of(segment.schema_version, str(path)).names
    stored = [name for name in dictionaries if name in TEXT_DICTIONARIES and name in held]
    with _faults(path):
        # With a buffer of 0 a reader holds the bytes of whole column chunks.
        file = pq.ParquetFile(
            path,
            read_dictionary=stored,
            buffer_size=STREAM_BUFFER_BYTES if is_streamed else 0,
            page_checksum_verification=True,
        )
    with file:
        _check_version(path, file, segment)
        _check_owner(path, file, segment)
        yield SegmentFile(path, file, segment)


def _check_version(path: Path, file: pq.ParquetFile, segment: Segment) -> None:
    """Raise OtherSchema unless the file has the columns that the catalog says.

    Otherwise a column that it has would be read as null.
    """
    version = (file.metadata.metadata or {}).get(VERSION_KEY, b"1").decode(errors="replace")
    if version != str(segment.schema_version):
        raise OtherSchema(
            f"{path}: has schema version {version}, the catalog says {segment.schema_version}"
        )


def _check_owner(path: Path, file: pq.ParquetFile, segment: Segment) -> None:
    """Raise OtherSegment if the file says that it is another segment. Files from before do not say.

    A file copied in place of another has rows of another organisation or day.
    """
    said = file.metadata.metadata or {}
    wanted = owner_metadata(segment.tenant_id, segment.day, segment.segment_id)
    for key, value in wanted.items():
        stated = said.get(key.encode(), value.encode()).decode(errors="replace")
        if stated != value:
            raise OtherSegment(f"{path}: {key} is {stated} instead of {value}: {REMEDY}")


def _part(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The columns `names` of `schema`, in its order."""
    return pa.schema([field for field in schema if field.name in names])


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Raise what pyarrow says of a damaged or missing file as a StoreFault that names it."""
    try:
        yield
    except ARROW_FAULTS as error:
        raise StoreFault(f"{path}: {error}") from error
