"""The formats of files to import, and the chunks in which they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final

import msgspec

from analytics.export.compression import Compression
from analytics.imports.items import IGNORED, ITEM_COLUMNS, ImportItem
from analytics.model.row_validation import RowRefused

CHUNK_ROWS: Final = 16_384


CHUNK_BYTES: Final = 16 * 1024 * 1024
"""A chunk ends with the item that reaches one of these; bytes are counted where rows are text."""


ROWS_MAX: Final = 100_000_000
"""Rows of one file, at most, unless the caller says otherwise."""


READ_BYTES: Final = 1024 * 1024


_SUFFIXES: Final = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}


ImportedRow = tuple[int, ImportItem | RowRefused]
"""A row of a file, by its number from 1: its item, or why it was refused."""


class ImportFormat(StrEnum):
    """The format of a file to import."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


class UnreadableFile(ValueError):
    """The file cannot be read to its end; `line` is where it failed, if known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.line = line


def check_row_count(rows: int, rows_max: int) -> None:
    """Raises UnreadableFile if a file has too many rows."""
    if rows > rows_max:
        raise UnreadableFile(f"the file has more than {rows_max:,} rows: split it")


_FORMATS: Final = {
    ".csv": ImportFormat.CSV,
    ".jsonl": ImportFormat.NDJSON,
    ".ndjson": ImportFormat.NDJSON,
    ".parquet": ImportFormat.PARQUET,
}


@dataclass(frozen=True, slots=True)
class FileKind:
    """How to read a file. `is_raw` means that its CSV values have no guard against formulas."""

    format: ImportFormat
    compression: Compression | None = None
    is_raw: bool = False


def file_kind(name: str, given: ImportFormat | None, *, is_raw: bool) -> FileKind:
    """The kind that the file's name shows, if it is not `given`. Raises UnreadableFile."""
    path = PurePath(name.lower())
    compression = _SUFFIXES.get(path.suffix)
    if compression is not None:
        path = path.with_suffix("")
    import_format = given or _FORMATS.get(path.suffix)
    if import_format is None:
        raise UnreadableFile(
            f"the name does not end in {', '.join(_FORMATS)} (or in one of these and .gz or .zst):"
            " say --format"
        )
    return FileKind(import_format, compression, is_raw)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, in its order. `position` is the number of bytes read so far."""

    entries: list[ImportedRow]
    position: int


def check_columns(names: Sequence[str], line: int | None) -> None:
    """Raise UnreadableFile unless `names` are columns to make rows of."""
    unknown = [name for name in names if name not in ITEM_COLUMNS and name not in IGNORED]
    if unknown:
        raise UnreadableFile(f"unknown column: {', '.join(unknown)[:300]}", line)
    if len(set(names)) < len(names):
        raise UnreadableFile("a column is there twice", line)
    missing = [name for name in ("created_at", "event") if name not in names]
    if missing:
        raise UnreadableFile(f"missing column: {', '.join(missing)}", line)


def item_of(values: Sequence[Any]) -> ImportItem:
    """The item with `values` (text or None), in the order of ITEM_COLUMNS."""
    *texts, payload, envelope = values
    return ImportItem(*[*texts, _raw(payload), _raw(envelope)])


def _raw(text: str | None) -> msgspec.Raw:
    return msgspec.Raw() if text is None else msgspec.Raw(text)
