"""Reads Parquet files as items to import, a page of a row group at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.imports import chunks
from analytics.imports.chunks import (
    READ_BYTES,
    Chunk,
    Entry,
    UnreadableFile,
    check_columns,
    check_row_count,
    item_of,
)
from analytics.imports.items import ITEM_COLUMNS, ImportItem
from analytics.model.errors import ARROW_FAULTS
from analytics.model.row_validation import RowRefused

_INSTANT_TEXT: Final = "%Y-%m-%dT%H:%M:%SZ"


def read_parquet(file: BinaryIO, size: int, rows_max: int) -> Iterator[Chunk]:
    """Read a page of a row group at a time, so that no row group has to fit into memory."""
    with _parquet_faults():
        metadata = pq.read_metadata(file)
    # Before the first is read: a file of a few kilobytes can have any number of equal rows.
    check_row_count(metadata.num_rows, rows_max)
    with _parquet_faults():
        paths = {metadata.schema.column(n).path for n in range(metadata.num_columns)}
        parquet = pq.ParquetFile(
            file,
            metadata=metadata,
            buffer_size=READ_BYTES,
            pre_buffer=False,
            read_dictionary=[name for name in ITEM_COLUMNS if name in paths],
        )
        schema = parquet.schema_arrow
    check_columns(schema.names, line=None)
    columns = [name for name in ITEM_COLUMNS if name in schema.names]
    for name in columns:
        _check_type(name, schema.field(name).type)
    batches = parquet.iter_batches(_rows_at_once(parquet), columns=columns, use_threads=False)
    done, total = 0, parquet.metadata.num_rows
    while True:
        with _parquet_faults(done + 1):
            batch = next(batches, None)
            if batch is None:
                break
            parts = _parts(batch)
        for part in parts:
            with _parquet_faults(done + 1):
                entries = _parquet_entries(part, done + 1)
            done += part.num_rows
            if done > total:
                break
            yield Chunk(entries, size * done // total)
    if done != total:
        raise UnreadableFile(f"the file has {done} rows and says that it has {total}")


def _parts(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows of `batch`, of about CHUNK_BYTES together once their text is spelt out (or one row).

    A dictionary holds a long text once, however many rows have it.
    """
    sizes = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for column in batch:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)
            sizes = pc.add(sizes, pc.fill_null(lengths, 0))
    parts: list[pa.RecordBatch] = []
    begin = held = 0
    for place, size in enumerate(sizes.to_pylist()):
        if held and held + size > chunks.CHUNK_BYTES:
            parts.append(batch.slice(begin, place - begin))
            begin, held = place, 0
        held += size
    return [*parts, batch.slice(begin)]


def _rows_at_once(parquet: pq.ParquetFile) -> int:
    """How many rows fit into a chunk in memory, estimated by the widest row group."""
    groups = (parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups))
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(chunks.CHUNK_ROWS, chunks.CHUNK_BYTES // max(widest, 1)))


def _check_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_good = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if name == "created_at":
        is_good |= pa.types.is_timestamp(kind)
    if not is_good:
        raise UnreadableFile(f"column {name} is of type {kind}, and must be text")


def _parquet_entries(batch: pa.RecordBatch, first: int) -> list[Entry]:
    values = {name: _texts(column) for name, column in zip(batch.schema.names, batch, strict=True)}
    nothing = [None] * batch.num_rows
    rows = zip(*(values.get(name, nothing) for name in ITEM_COLUMNS), strict=True)
    return [(first + number, _parquet_item(row)) for number, row in enumerate(rows)]


def _parquet_item(values: Sequence[str | bytes | None]) -> ImportItem | RowRefused:
    try:
        return item_of([v.decode() if isinstance(v, bytes) else v for v in values])
    except UnicodeDecodeError:
        return RowRefused("the row is not UTF-8")


def _texts(column: pa.Array) -> list[str | bytes | None]:
    """The values of a column, instants spelt out; as bytes where some are not UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        # Without its zone, which arrow keeps beside instants that are UTC all the same.
        naive = column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp("us"))
        column = pc.strftime(naive, format=_INSTANT_TEXT)
    column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        column = column.cast(pa.string()).cast(pa.binary())
        column.validate(full=True)  # any remaining fault is not about the text
    texts: list[str | bytes | None] = column.to_pylist()
    return texts


@contextmanager
def _parquet_faults(row: int | None = None) -> Iterator[None]:
    """Raise pyarrow's error about bytes that are not Parquet as an UnreadableFile."""
    try:
        yield
    except ARROW_FAULTS as error:
        where = "" if row is None else f" from row {row} on"
        reason = " ".join(str(error).split())[:200]
        raise UnreadableFile(f"not a readable Parquet file{where}: {reason}") from error
