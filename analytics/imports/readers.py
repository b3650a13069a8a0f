"""Files of rows as items to import: NDJSON, CSV and Parquet, piece by piece, in bounded memory.

A row that is not an item is reported with its line, and reading continues with the next one. A
fault after which the beginning or existence of the next row is in doubt fails the whole file.
"""

import codecs
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.export.compression import Compression
from analytics.export.csv_json import unguarded
from analytics.imports import chunks
from analytics.imports.chunks import (
    READ_BYTES,
    ROWS_MAX,
    Chunk,
    FileKind,
    ImportedRow,
    ImportFormat,
    UnreadableFile,
    check_columns,
    check_row_count,
    item_of,
)
from analytics.imports.items import ITEM_COLUMNS, ImportItem, read_object
from analytics.model.errors import ARROW_FAULTS
from analytics.model.row_validation import RowRefused

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_BLOCK_BYTES: Final = 1024 * 1024
_PARQUET_INSTANT: Final = "%Y-%m-%dT%H:%M:%SZ"


class LineTooLong(ValueError):
    """A line is too long to be held in memory."""


class Stream(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class Lines:
    """The lines of `stream`, without their line feeds and without a byte order mark.

    `number` is that of the last line returned, from 1. `is_torn` means that this is the last line
    and lacks a line feed, so that it may be cut off. Raises LineTooLong.
    """

    def __init__(self, stream: Stream, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._stream = stream
        self._bytes_max = bytes_max
        self.number = 0
        self.is_torn = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines():
            self.number += 1
            yield line.removeprefix(codecs.BOM_UTF8) if self.number == 1 else line

    def _lines(self) -> Iterator[bytes]:
        rest = bytearray()
        while block := self._stream.read(_BLOCK_BYTES):
            first, *others = block.split(b"\n")
            rest += first
            # Checked for each block: a line without an end must not fill the memory.
            if len(rest) > self._bytes_max:
                raise LineTooLong(f"the line is longer than {self._bytes_max} bytes")
            if others:
                yield bytes(rest)
                yield from others[:-1]
                rest = bytearray(others[-1])
        if rest:
            self.is_torn = True
            yield bytes(rest)


_MAGIC: Final = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}


def read_chunks(
    file: BinaryIO, size: int, kind: FileKind, rows_max: int = ROWS_MAX
) -> Iterator[Chunk]:
    """All rows of `file`, a seekable one of `size` bytes.

    Raises UnreadableFile midway, also for a file of more than `rows_max` rows.
    """
    rows = 0
    for chunk in _chunks(file, size, kind, rows_max):
        rows += len(chunk.entries)
        check_row_count(rows, rows_max)
        yield chunk


def _chunks(file: BinaryIO, size: int, kind: FileKind, rows_max: int) -> Iterator[Chunk]:
    file.seek(0)
    if kind.format is ImportFormat.PARQUET:
        yield from _read_parquet(file, size, rows_max)
        return
    lines = Lines(_unpacked(file, kind.compression))
    read = _ndjson if kind.format is ImportFormat.NDJSON else _csv
    yield from _in_chunks(read(lines, kind), lines, file.tell)


def _unpacked(file: BinaryIO, declared: Compression | None) -> Stream:
    """The decompressed contents of `file`. Text never begins like a compressed stream."""
    start = file.read(4)
    file.seek(0)
    compression = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if declared is not None and compression is not declared:
        raise UnreadableFile(f"the file is not {declared}, although its name says otherwise")
    if compression is None:
        return file
    packed = pa.PythonFile(_NotClosed(file), mode="r")
    return _Unpacked(pa.CompressedInputStream(packed, compression.value))


class _NotClosed:
    """The caller's file, which Arrow would otherwise close together with its own stream."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


@dataclass(frozen=True, slots=True)
class _Unpacked:
    stream: Any

    def read(self, size: int, /) -> bytes:
        """The next bytes. Raises UnreadableFile for a stream that is damaged or has no end."""
        try:
            return bytes(self.stream.read(size))
        except ARROW_FAULTS as error:
            raise UnreadableFile("the compressed file is damaged or cut off") from error


def _in_chunks(
    entries: Iterator[tuple[ImportedRow, int]], lines: Lines, tell: Callable[[], int]
) -> Iterator[Chunk]:
    """`entries`, each with its bytes, in chunks; none of them is lost when reading fails."""
    chunk: list[ImportedRow] = []
    size = 0
    try:
        for entry, length in entries:
            chunk.append(entry)
            size += length
            if len(chunk) >= chunks.CHUNK_ROWS or size >= chunks.CHUNK_BYTES:
                yield Chunk(chunk, tell())
                chunk, size = [], 0
    except (LineTooLong, UnreadableFile) as error:
        yield Chunk(chunk, tell())
        if isinstance(error, UnreadableFile) and error.line is not None:
            raise
        raise UnreadableFile(str(error), lines.number + 1) from error
    yield Chunk(chunk, tell())


def _ndjson(lines: Lines, _: FileKind) -> Iterator[tuple[ImportedRow, int]]:
    for line in lines:
        if not line or line.isspace():
            continue
        try:
            item: ImportItem | RowRefused = read_object(line)
        except RowRefused as error:
            # A whole object ends with its brace, whether or not a line feed follows.
            item = RowRefused(f"the file ends in this line: {error}") if lines.is_torn else error
        yield (lines.number, item), len(line)


@dataclass(slots=True)
class _CsvRecord:
    """The CSV record being read: how long it is so far, and what is wrong with its bytes."""

    size: int = 0
    fault: str | None = None


def _csv(lines: Lines, kind: FileKind) -> Iterator[tuple[ImportedRow, int]]:
    record = _CsvRecord()
    # A cell may be as long as a record. The limit is the process's: only this module reads CSV.
    csv.field_size_limit(LINE_BYTES_MAX)
    reader = csv.reader(_csv_lines(lines, record), strict=True)
    item_of: Callable[[list[str]], ImportItem | RowRefused] | None = None
    while True:
        begins_at, record.size, record.fault = lines.number + 1, 0, None
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UnreadableFile(f"not CSV: {error}", begins_at) from error
        if cells is None:
            break
        if item_of is None:
            item_of = _csv_items(cells, record.fault, is_raw=kind.is_raw)
        elif cells:
            fault = "the file ends in this line" if lines.is_torn else record.fault
            yield (begins_at, RowRefused(fault) if fault else item_of(cells)), record.size
    if item_of is None:
        raise UnreadableFile("the file has no header", 1)


def _csv_lines(lines: Lines, record: _CsvRecord) -> Iterator[str]:
    for line in lines:
        record.size += len(line) + 1
        if record.size > LINE_BYTES_MAX:
            raise LineTooLong(f"a row is longer than {LINE_BYTES_MAX} bytes")
        if b"\0" in line:
            record.fault = "the row has a NUL byte"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            record.fault = "the row is not UTF-8"
            text = line.decode(errors="replace")
        yield text if lines.is_torn else text + "\n"


def _csv_items(
    header: list[str], fault: str | None, *, is_raw: bool
) -> Callable[[list[str]], ImportItem | RowRefused]:
    """How the cells of a row become an item, under this header. Raises UnreadableFile."""
    if fault is not None:
        raise UnreadableFile(fault, 1)
    check_columns(header, line=1)
    # Behind the last cell there will be an empty one, for the columns that are not there.
    places = [header.index(name) if name in header else len(header) for name in ITEM_COLUMNS]

    def item(cells: list[str]) -> ImportItem | RowRefused:
        if len(cells) != len(header):
            return RowRefused(f"the row has {len(cells)} cells, the header {len(header)}")
        if not is_raw:
            cells = [unguarded(cell) for cell in cells]
        cells.append("")
        return item_of([cells[place] or None for place in places])

    return item


def _read_parquet(file: BinaryIO, size: int, rows_max: int) -> Iterator[Chunk]:
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
        _check_parquet_type(name, schema.field(name).type)
    batches = parquet.iter_batches(
        _parquet_rows_at_once(parquet), columns=columns, use_threads=False
    )
    done, total = 0, parquet.metadata.num_rows
    while True:
        with _parquet_faults(done + 1):
            batch = next(batches, None)
            if batch is None:
                break
            parts = _parquet_parts(batch)
        for part in parts:
            with _parquet_faults(done + 1):
                entries = _parquet_entries(part, done + 1)
            done += part.num_rows
            if done > total:
                break
            yield Chunk(entries, size * done // total)
    if done != total:
        raise UnreadableFile(f"the file has {done} rows and says that it has {total}")


def _parquet_parts(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
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


def _parquet_rows_at_once(parquet: pq.ParquetFile) -> int:
    """How many rows fit into a chunk in memory, estimated by the widest row group."""
    groups = (parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups))
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(chunks.CHUNK_ROWS, chunks.CHUNK_BYTES // max(widest, 1)))


def _check_parquet_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_good = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if name == "created_at":
        is_good |= pa.types.is_timestamp(kind)
    if not is_good:
        raise UnreadableFile(f"column {name} is of type {kind}, and must be text")


def _parquet_entries(batch: pa.RecordBatch, first: int) -> list[ImportedRow]:
    values = {
        name: _parquet_texts(column) for name, column in zip(batch.schema.names, batch, strict=True)
    }
    nothing = [None] * batch.num_rows
    rows = zip(*(values.get(name, nothing) for name in ITEM_COLUMNS), strict=True)
    return [(first + number, _parquet_item(row)) for number, row in enumerate(rows)]


def _parquet_item(values: Sequence[str | bytes | None]) -> ImportItem | RowRefused:
    try:
        return item_of([v.decode() if isinstance(v, bytes) else v for v in values])
    except UnicodeDecodeError:
        return RowRefused("the row is not UTF-8")


def _parquet_texts(column: pa.Array) -> list[str | bytes | None]:
    """The values of a column, instants spelt out; as bytes where some are not UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        # Without its zone, which arrow keeps beside instants that are UTC all the same.
        naive = column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp("us"))
        column = pc.strftime(naive, format=_PARQUET_INSTANT)
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
