"""Files of rows: made piece by piece, in constant memory, with their digest.

Every format shows by itself, or by the missing end of its transfer, that it broke off: the array
is not closed, the Parquet file has no footer, the compressed stream no end.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.compression import Compression, Outlet, compressor
from analytics.formats import WIRE_SCHEMA, csv_lines, json_text, wire_table
from analytics.schema import WIRE_COLUMNS

ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""A row group of a Parquet file ends with the table that reaches one of these."""

_PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    # What differs from row to row only fills a dictionary that is then thrown away.
    "use_dictionary": [n for n in WIRE_COLUMNS if n not in {"id", "created_at", "received_at"}],
}


class ExportFormat(StrEnum):
    """What a file of rows looks like."""

    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class FileForm:
    """Which file is made, and how it travels.

    `compression` is the file's own: whoever keeps it keeps it compressed. `coding` is the
    transfer's alone: whoever receives it undoes it. A Parquet file is compressed inside and takes
    neither. `is_raw` leaves CSV values unguarded, see `csv_lines`.
    """

    format: ExportFormat
    compression: Compression | None = None
    coding: Compression | None = None
    is_raw: bool = False

    def __post_init__(self) -> None:
        if self.format is ExportFormat.PARQUET and (self.compression or self.coding):
            raise ValueError("a Parquet file is not compressed again")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to send, and how far the file has come with them.

    `rows`, `size` and `sha256` are those of the file so far, before any coding.
    """

    content: bytes
    rows: int
    size: int
    sha256: str


def export_pieces(tables: Iterable[pa.Table], tenant_id: str, form: FileForm) -> Iterator[Piece]:
    """The whole file of `tables` (AUDIT_SCHEMA), none of its pieces empty."""
    counted = _RowCount(tables)
    digest = hashlib.sha256()
    size = 0
    coder = compressor(form.coding)
    for content in _compressed(_contents(counted, tenant_id, form), form.compression):
        digest.update(content)
        size += len(content)
        yield Piece(coder.add(content), counted.rows, size, digest.hexdigest())
    if rest := coder.finish():
        yield Piece(rest, counted.rows, size, digest.hexdigest())


def _compressed(contents: Iterator[bytes], compression: Compression | None) -> Iterator[bytes]:
    stream = compressor(compression)
    for content in contents:
        yield stream.add(content)
    if rest := stream.finish():
        yield rest


def _contents(tables: Iterable[pa.Table], tenant_id: str, form: FileForm) -> Iterator[bytes]:
    filled = (rows for rows in tables if rows.num_rows)
    match form.format:
        case ExportFormat.CSV:
            return _csv(filled, tenant_id, is_raw=form.is_raw)
        case ExportFormat.JSON:
            return _json(filled, tenant_id)
        case ExportFormat.NDJSON:
            return (json_text(rows, tenant_id, "\n") + b"\n" for rows in filled)
        case ExportFormat.PARQUET:
            return _parquet(filled, tenant_id)


def _csv(tables: Iterable[pa.Table], tenant_id: str, *, is_raw: bool) -> Iterator[bytes]:
    yield (",".join(WIRE_COLUMNS) + "\n").encode()
    for rows in tables:
        yield csv_lines(rows, tenant_id, is_raw=is_raw)


def _json(tables: Iterable[pa.Table], tenant_id: str) -> Iterator[bytes]:
    opening = b"[\n"
    for rows in tables:
        yield opening + json_text(rows, tenant_id, ",\n")
        opening = b",\n"
    yield b"[]\n" if opening == b"[\n" else b"\n]\n"


def _parquet(tables: Iterable[pa.Table], tenant_id: str) -> Iterator[bytes]:
    made = Outlet()
    with pq.ParquetWriter(pa.PythonFile(made, mode="w"), WIRE_SCHEMA, **_PARQUET_OPTIONS) as writer:
        for rows in _gathered(tables):
            writer.write_table(wire_table(rows, tenant_id), row_group_size=rows.num_rows)
            yield made.drain()
    yield made.drain()  # the footer, without which it is no Parquet file


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """`tables` joined to what a row group should hold: days with few rows share one."""
    held: list[pa.Table] = []
    count = size = 0
    for rows in tables:
        held.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(held)
            held, count, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


class _RowCount:
    """Counts the rows of the tables that pass through it."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = tables
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self.rows += table.num_rows
            yield table
