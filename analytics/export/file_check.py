"""The size, digest and number of rows of an exported file, for comparison."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.model.errors import ARROW_FAULTS

_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file's size in bytes and SHA-256, and its rows; None if they cannot be counted."""

    size: int
    sha256: str
    rows: int | None


def examine(
    file: BinaryIO, export_format: ExportFormat, compression: Compression | None
) -> FileFacts:
    """The facts of `file`, a seekable one, read in constant memory.

    Rows are counted as this service writes them: one on each line, but for line breaks within
    quotes in CSV. In a file that was changed the count may be wrong; its digest is, too.
    """
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(file.read):
        digest.update(chunk)
        size += len(chunk)
    file.seek(0)
    try:
        rows = _count_rows(file, export_format, compression)
    except (*ARROW_FAULTS, zlib.error):
        rows = None
    return FileFacts(size, digest.hexdigest(), rows)


def _count_rows(
    file: BinaryIO, export_format: ExportFormat, compression: Compression | None
) -> int:
    if not export_format.facts.is_text:
        return int(pq.ParquetFile(pa.PythonFile(file, mode="r")).metadata.num_rows)
    stream: Any = file
    if compression is not None:
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression.value)
    chunks = _chunks(stream.read)
    facts = export_format.facts
    lines = _lines_outside_quotes(chunks) if facts.has_quotes else _lines(chunks)
    return max(lines - facts.frame_lines, 0)


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while chunk := bytes(read(_CHUNK_BYTES)):
        yield chunk


def _lines(chunks: Iterator[bytes]) -> int:
    return sum(chunk.count(b"\n") for chunk in chunks)


def _lines_outside_quotes(chunks: Iterator[bytes]) -> int:
    """The line breaks outside quotes. A quote in a value is doubled, so it changes nothing."""
    lines, is_quoted = 0, False
    for chunk in chunks:
        for number, part in enumerate(chunk.split(b'"')):
            if number:
                is_quoted = not is_quoted
            if not is_quoted:
                lines += part.count(b"\n")
    return lines
