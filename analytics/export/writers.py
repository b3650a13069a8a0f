"""Writes files of rows piece by piece, in constant memory, with their digest.

Every format shows by itself, or by the missing end of its transfer, that it broke off: the array
is not closed, the Parquet file has no footer, the compressed stream no end.
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.export.compression import ByteSink, Compression, compressor
from analytics.export.csv_json import CsvSpelling, JsonSpelling
from analytics.export.formats import ExportFormat
from analytics.export.text_encoder import TextEncoder
from analytics.export.wire import WIRE_SCHEMA, wire_table
from analytics.model.schema import AUDIT_SCHEMA, WIRE_COLUMNS

ROW_GROUP_ROWS: Final = 65_536
"""The most rows in a row group of a Parquet file, unless a single table has more."""

TEXT_ROWS: Final = 32_768
"""The most rows that are encoded as text together, unless a single table has more.

Values are encoded again for each table. That of a row group of a segment stays one of its own:
joined with a part of the next, the dictionaries of both would have to become one."""

SHORT_TEXT_ROWS: Final = 49_152
"""The same of tables of less than half of TEXT_ROWS, which are days with few rows: the more of them
are joined, the fewer values are encoded again. 65,536 would save little more, for 17 MB."""

GATHERED_BYTES: Final = 32 * 1024 * 1024
"""A gathered table of this size is large enough, however few rows it has."""

_PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    # What differs from row to row only fills a dictionary that is then thrown away.
    "use_dictionary": [n for n in WIRE_COLUMNS if n not in {"id", "created_at", "received_at"}],
}


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """How a file is written and transferred.

    `compression` is the file's own: it is stored compressed. `coding` is the
    transfer's alone: the client undoes it. A Parquet file is compressed inside and takes
    neither. `is_raw` leaves CSV values unguarded, see `CsvSpelling`.
    """

    format: ExportFormat
    compression: Compression | None = None
    coding: Compression | None = None
    is_raw: bool = False

    def __post_init__(self) -> None:
        if not self.format.facts.is_text and (self.compression or self.coding):
            raise ValueError(f"a {self.format.facts.label} file is not compressed again")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to send, and how far the file has come with them.

    `rows`, `size` and `sha256` are those of the file so far, before any coding.
    """

    content: bytes
    rows: int
    size: int
    sha256: str


_Content = tuple[bytes, int]
"""Bytes of a file, and the number of rows that end in them."""


def export_pieces(
    tables: Iterable[pa.Table], tenant_id: str, encoding: FileEncoding
) -> Generator[Piece, None, None]:
    """The complete file of `tables`, in pieces that are never empty.

    `tables` have AUDIT_SCHEMA, except that text columns may be dictionary-encoded.
    One thread fetches them and another one encodes, each a step ahead, while the caller's thread
    compresses and hashes. The threads end with the last piece, or when this generator is closed,
    which waits for their current step.
    """
    digest = hashlib.sha256()
    size = rows = 0
    coder = compressor(encoding.coding)
    contents = prefetch(_contents(tables, tenant_id, encoding))
    for content, more in _compressed(contents, encoding.compression):
        digest.update(content)
        size += len(content)
        rows += more
        yield Piece(coder.add(content), rows, size, digest.hexdigest())
    if rest := coder.finish():
        yield Piece(rest, rows, size, digest.hexdigest())


def _compressed(
    contents: Iterator[_Content], compression: Compression | None
) -> Iterator[_Content]:
    stream = compressor(compression)
    for content, rows in contents:
        yield stream.add(content), rows
    if rest := stream.finish():
        yield rest, 0


def _contents(
    tables: Iterable[pa.Table], tenant_id: str, encoding: FileEncoding
) -> Iterator[_Content]:
    filled = (rows for rows in tables if rows.num_rows)
    match encoding.format:
        case ExportFormat.CSV:
            return _csv(
                _texts(filled, TextEncoder(tenant_id, CsvSpelling(encoding.is_raw)), encoding)
            )
        case ExportFormat.JSON:
            return _json(_texts(filled, TextEncoder(tenant_id, JsonSpelling(",\n", "")), encoding))
        case ExportFormat.NDJSON:
            return _texts(filled, TextEncoder(tenant_id, JsonSpelling("", "\n")), encoding)
        case ExportFormat.PARQUET:
            return _parquet(filled, tenant_id)


def _texts(
    tables: Iterable[pa.Table], encoder: TextEncoder, encoding: FileEncoding
) -> Iterator[_Content]:
    """The rows of `tables` as text, in pieces."""
    for rows in prefetch(_gathered(tables, TEXT_ROWS, SHORT_TEXT_ROWS)):
        if encoding.compression or encoding.coding:
            # Each piece ends a block of the compressed stream: fewer pieces pack better.
            yield b"".join(text for text, _ in encoder.texts(rows)), rows.num_rows
        else:
            yield from encoder.texts(rows)


def _csv(lines: Iterator[_Content]) -> Iterator[_Content]:
    yield (",".join(WIRE_COLUMNS) + "\n").encode(), 0
    yield from lines


def _json(objects: Iterator[_Content]) -> Iterator[_Content]:
    """`objects`, each with a comma before it, as an array."""
    first, rows = next(objects, (b"", 0))
    if not first:
        yield b"[]\n", 0
        return
    yield b"[" + first.removeprefix(b","), rows
    yield from objects
    yield b"\n]\n", 0


def _parquet(tables: Iterable[pa.Table], tenant_id: str) -> Iterator[_Content]:
    made = ByteSink()
    with pq.ParquetWriter(pa.PythonFile(made, mode="w"), WIRE_SCHEMA, **_PARQUET_OPTIONS) as writer:
        plain = (wire_table(rows.cast(AUDIT_SCHEMA), tenant_id) for rows in tables)
        for rows in prefetch(_gathered(plain, ROW_GROUP_ROWS)):
            writer.write_table(rows, row_group_size=rows.num_rows)
            yield made.drain(), rows.num_rows
    yield made.drain(), 0  # the footer, without which a Parquet file is invalid


def _gathered(
    tables: Iterable[pa.Table], rows_max: int, short_rows_max: int = 0
) -> Iterator[pa.Table]:
    """`tables`, neighbours joined up to `rows_max` rows; short ones up to `short_rows_max`."""
    held: list[pa.Table] = []
    count = size = 0
    for rows in tables:
        are_short = all(2 * table.num_rows < rows_max for table in (*held[:1], rows))
        most = max(rows_max, short_rows_max) if are_short else rows_max
        if held and (count + rows.num_rows > most or held[0].schema != rows.schema):
            yield pa.concat_tables(held)
            held, count, size = [], 0, 0
        held.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= most or size >= GATHERED_BYTES:
            yield pa.concat_tables(held)
            held, count, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


_Item = TypeVar("_Item")


def prefetch(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """`items`, none of which is None; a thread prepares the next item, but no further ones.

    An exception of `items` is raised in place of the item. Closing this waits for the item being
    prepared and ends the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
            del item  # not kept alive while waiting for the next one
