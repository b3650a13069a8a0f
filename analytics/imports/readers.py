"""Files of rows as items to import: NDJSON, CSV and Parquet, piece by piece, in bounded memory.

A row that is no item is told with its line, and the next one is read. What leaves in doubt where
the next row begins, or whether there is one, is a fault of the whole file.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.export.compression import Compression
from analytics.export.csv_json import unguarded
from analytics.imports.items import IGNORED, ITEM_COLUMNS, ImportItem, read_object
from analytics.imports.lines import LINE_BYTES_MAX, Lines, LineTooLong, Stream
from analytics.model.errors import ARROW_FAULTS
from analytics.model.row_validation import RowRefused

CHUNK_ROWS: Final = 16_384
CHUNK_BYTES: Final = 16 * 1024 * 1024
"""A chunk ends with the item that reaches one of these; bytes are counted where rows are text."""

_READ_BYTES: Final = 1024 * 1024
_MAGIC: Final = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
_SUFFIXES: Final = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}
_INSTANT_TEXT: Final = "%Y-%m-%dT%H:%M:%SZ"

Entry = tuple[int, ImportItem | RowRefused]
"""A row of a file by its number, from 1: what it says, or why it says nothing."""


class ImportFormat(StrEnum):
    """What a file to import looks like."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


class UnreadableFile(ValueError):
    """A file that cannot be read to its end; `line`, where known, is where it went wrong."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.line = line


_FORMATS: Final = {
    ".csv": ImportFormat.CSV,
    ".jsonl": ImportFormat.NDJSON,
    ".ndjson": ImportFormat.NDJSON,
    ".parquet": ImportFormat.PARQUET,
}


@dataclass(frozen=True, slots=True)
class FileKind:
    """How a file is to be read. `is_raw`: its CSV values have no guard against formulas."""

    format: ImportFormat
    compression: Compression | None = None
    is_raw: bool = False


def file_kind(name: str, given: ImportFormat | None, *, is_raw: bool) -> FileKind:
    """The kind that the file's name shows, if it is not `given`. Raises UnreadableFile."""
    path = PurePath(name.lower())
    compression = _SUFFIXES.get(path.suffix)
    if compression is not None:
        path = path.with_suffix("")
    found = given or _FORMATS.get(path.suffix)
    if found is None:
        raise UnreadableFile(
            f"the name does not end in {', '.join(_FORMATS)} (or in one of these and .gz or .zst):"
            " say --format"
        )
    return FileKind(found, compression, is_raw)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, in its order. `position`: how many of its bytes are behind us."""

    entries: list[Entry]
    position: int


def read_chunks(file: BinaryIO, size: int, kind: FileKind) -> Iterator[Chunk]:
    """All rows of `file`, a seekable one of `size` bytes. Raises UnreadableFile midway."""
    file.seek(0)
    if kind.format is ImportFormat.PARQUET:
        yield from _parquet(file, size)
        return
    lines = Lines(_unpacked(file, kind.compression))
    read = _ndjson if kind.format is ImportFormat.NDJSON else _csv
    yield from _in_chunks(read(lines, kind), lines, file.tell)


def _unpacked(file: BinaryIO, declared: Compression | None) -> Stream:
    """What `file` holds once unpacked. Text never begins like a compressed stream."""
    start = file.read(4)
    file.seek(0)
    found = next((one for magic, one in _MAGIC.items() if start.startswith(magic)), None)
    if declared is not None and found is not declared:
        raise UnreadableFile(f"the file is not {declared}, whatever its name says")
    if found is None:
        return file
    packed = pa.PythonFile(_NotClosed(file), mode="r")
    return _Unpacked(pa.CompressedInputStream(packed, found.value))


class _NotClosed:
    """The caller's file: arrow would close it together with the stream it makes of it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read

    def close(self) -> None:
        """It is not ours to close."""


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
    entries: Iterator[tuple[Entry, int]], lines: Lines, tell: Callable[[], int]
) -> Iterator[Chunk]:
    """`entries`, each with its bytes, in chunks; whatever happens, none of them is lost."""
    chunk: list[Entry] = []
    size = 0
    try:
        for entry, length in entries:
            chunk.append(entry)
            size += length
            if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield Chunk(chunk, tell())
                chunk, size = [], 0
    except (LineTooLong, UnreadableFile) as error:
        yield Chunk(chunk, tell())
        if isinstance(error, UnreadableFile) and error.line is not None:
            raise
        raise UnreadableFile(str(error), lines.number + 1) from error
    yield Chunk(chunk, tell())


def _ndjson(lines: Lines, _: FileKind) -> Iterator[tuple[Entry, int]]:
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
class _Record:
    """The CSV record being read: how long it is so far, and what is wrong with its bytes."""

    size: int = 0
    fault: str | None = None


def _csv(lines: Lines, kind: FileKind) -> Iterator[tuple[Entry, int]]:
    record = _Record()
    # One cell may be as long as a record; the limit is the process's, and nobody else reads CSV.
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


def _csv_lines(lines: Lines, record: _Record) -> Iterator[str]:
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
    _check_columns(header, line=1)
    # Behind the last cell there will be an empty one, for the columns that are not there.
    places = [header.index(name) if name in header else len(header) for name in ITEM_COLUMNS]

    def item(cells: list[str]) -> ImportItem | RowRefused:
        if len(cells) != len(header):
            return RowRefused(f"the row has {len(cells)} cells, the header {len(header)}")
        if not is_raw:
            cells = [unguarded(cell) for cell in cells]
        cells.append("")
        return _item([cells[place] or None for place in places])

    return item


def _check_columns(names: Sequence[str], line: int | None) -> None:
    """Raise UnreadableFile unless `names` are columns to make rows of."""
    unknown = [name for name in names if name not in ITEM_COLUMNS and name not in IGNORED]
    if unknown:
        raise UnreadableFile(f"unknown column: {', '.join(unknown)[:300]}", line)
    if len(set(names)) < len(names):
        raise UnreadableFile("a column is there twice", line)
    missing = [name for name in ("created_at", "event") if name not in names]
    if missing:
        raise UnreadableFile(f"missing column: {', '.join(missing)}", line)


def _item(values: Sequence[Any]) -> ImportItem:
    """The item with `values` (text or None), in the order of ITEM_COLUMNS."""
    *texts, payload, envelope = values
    return ImportItem(*[*texts, _raw(payload), _raw(envelope)])


def _raw(text: str | None) -> msgspec.Raw:
    return msgspec.Raw() if text is None else msgspec.Raw(text)


def _parquet(file: BinaryIO, size: int) -> Iterator[Chunk]:
    """A row group is read a page at a time, so that none has to fit in memory."""
    with _parquet_faults():
        metadata = pq.read_metadata(file)
        paths = {metadata.schema.column(n).path for n in range(metadata.num_columns)}
        parquet = pq.ParquetFile(
            file,
            metadata=metadata,
            buffer_size=_READ_BYTES,
            pre_buffer=False,
            read_dictionary=[name for name in ITEM_COLUMNS if name in paths],
        )
        schema = parquet.schema_arrow
    _check_columns(schema.names, line=None)
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
        if held and held + size > CHUNK_BYTES:
            parts.append(batch.slice(begin, place - begin))
            begin, held = place, 0
        held += size
    return [*parts, batch.slice(begin)]


def _rows_at_once(parquet: pq.ParquetFile) -> int:
    """So many rows that a chunk of them fits in memory, by what the widest row group says."""
    groups = (parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups))
    widest = max((one.total_byte_size // max(one.num_rows, 1) for one in groups), default=0)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(widest, 1)))


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
        return _item([v.decode() if isinstance(v, bytes) else v for v in values])
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
        column.validate(full=True)  # what is still wrong is not the text
    texts: list[str | bytes | None] = column.to_pylist()
    return texts


@contextmanager
def _parquet_faults(row: int | None = None) -> Iterator[None]:
    """What pyarrow says of bytes that are no Parquet, as an UnreadableFile."""
    try:
        yield
    except ARROW_FAULTS as error:
        where = "" if row is None else f" from row {row} on"
        reason = " ".join(str(error).split())[:200]
        raise UnreadableFile(f"not a readable Parquet file{where}: {reason}") from error
