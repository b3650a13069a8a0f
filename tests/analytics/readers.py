"""Exported files read back by programs that had no part in making them."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.model.decision_reason import compact
from analytics.model.instants import format_us


def read_csv(content: bytes) -> list[dict[str, str]]:
    """What csv.DictReader makes of `content`."""
    return list(csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True))


def read_ndjson(content: bytes) -> list[dict[str, Any]]:
    """Each line by itself, as a log shipper takes them."""
    lines = content.split(b"\n")
    assert lines.pop() == b"", "the last line ends, too"
    return [json.loads(line) for line in lines]


def read_parquet(content: bytes) -> list[dict[str, Any]]:
    """Parquet's rows with instants and payload spelt as JSON has them."""
    return [
        entry
        | {name: format_us(entry[name]) for name in ("created_at", "received_at")}
        | {"payload": None if entry["payload"] is None else json.loads(entry["payload"])}
        for entry in pq.read_table(io.BytesIO(content)).to_pylist()
    ]


READERS: dict[str, Callable[[bytes], list[dict[str, Any]]]] = {
    ExportFormat.CSV: read_csv,
    ExportFormat.JSON: json.loads,
    ExportFormat.NDJSON: read_ndjson,
    ExportFormat.PARQUET: read_parquet,
}


def read_file(content: bytes, file_format: str) -> list[dict[str, Any]]:
    return READERS[file_format](content)


def as_read(entry: dict[str, Any], file_format: str) -> dict[str, Any]:
    """An entry of a page as `read_file` would give it back from a raw file.

    CSV has no types: null is an empty field, and the payload is text.
    """
    if file_format != ExportFormat.CSV:
        return entry
    return {
        name: compact(value) if isinstance(value, dict) else value or ""
        for name, value in entry.items()
    }


def decompressed(content: bytes, compression: Compression) -> bytes:
    """The whole stream's content; raises OSError if it is not whole."""
    with pa.CompressedInputStream(pa.BufferReader(content), compression.value) as stream:
        return stream.read()
