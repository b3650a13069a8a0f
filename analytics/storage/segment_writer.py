"""Writing segments: immutable Parquet files, each one tenant and one UTC day, rows newest first."""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.model.schema import AUDIT_SCHEMA, COLUMNS, SCHEMA_VERSION
from analytics.storage.file_copy import FileCopy, sha256_of
from analytics.storage.fsync import (
    NewFiles,
    fsync,
    mkdir_synced,
    new_files,
    write_synced,
    write_with_mode,
)
from analytics.storage.index_builder import IndexBuilder
from analytics.storage.layout import index_path, segment_path
from analytics.storage.segment_index import share_bits
from analytics.storage.segment_metadata import (
    VERSION_KEY,
    Segment,
    StatisticsBuilder,
    check_rows,
    owner_metadata,
)
from analytics.storage.verified_files import rows_file, verify_file

# Measured: small row groups let a rare value skip most of the file, and short pages most of the
# row group. What repeats within a day compresses best as a dictionary. What differs from row to row
# would only fill one as large as itself, to be unpacked for a single row: there the difference to
# the row before is stored, at a quarter of the size.
_DIFFERENCES: Final = {
    "seq": "DELTA_BINARY_PACKED",
    "created_at": "DELTA_BINARY_PACKED",
    "received_at": "DELTA_BINARY_PACKED",
    "request_id": "DELTA_BYTE_ARRAY",
}
_BLOOM: Final = {"ndv": 20_000, "fpp": 0.01}
ROW_GROUP_ROWS: Final = 32_768
ROW_GROUP_BYTES: Final = 32 * 2**20
"""About what a row group takes at most when it is decoded."""

PAGE_ROWS: Final = 2_048

PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": [name for name in AUDIT_SCHEMA.names if name not in _DIFFERENCES],
    "column_encoding": _DIFFERENCES,
    "max_rows_per_page": PAGE_ROWS,
    "write_page_checksum": True,
    # By these, readers skip row groups. Values of the others lie anywhere between their bounds.
    "write_statistics": ["seq", "created_at", "event", "decision"],
    "store_schema": False,  # Arrow's own copy of the schema: a tenth of a small file
}

_SKIPPING: Final = {column.name: _BLOOM for column in COLUMNS if column.has_bloom_filter}

PARQUET_SCHEMA: Final = pa.schema(
    [column.field.with_metadata({"PARQUET:field_id": str(column.field_id)}) for column in COLUMNS]
)
"""AUDIT_SCHEMA as files have it: with a number by which a column is known to readers that go by
those."""


def parquet_options(rows_expected: int) -> dict[str, Any]:
    """PARQUET_OPTIONS, and what lets a reader skip row groups and pages if there are several."""
    return PARQUET_OPTIONS | {
        "bloom_filter_options": _SKIPPING if rows_expected > ROW_GROUP_ROWS else None,
        "write_page_index": rows_expected > PAGE_ROWS,
    }


_INDEX_MODE: Final = 0o600
"""Permission bits of an index: no other program reads it, as some do the files of rows."""

TEXT_DICTIONARIES: Final = [
    field.name
    for field in AUDIT_SCHEMA
    if pa.types.is_string(field.type) and field.name not in _DIFFERENCES
]
"""The text columns that files have as dictionaries, so that they can be read as such."""


@dataclass(frozen=True, slots=True)
class NewSegment:
    """Rows of one tenant and day, in any order, that become the segment `segment_id`."""

    tenant_id: str
    day: date
    segment_id: str
    rows: pa.Table

    def write(self, files: NewFiles) -> Segment:
        """Write the file and its index among `files`."""
        # One chunk is quicker to sort than many.
        tables = [newest_first(self.rows.combine_chunks())]
        place = self.tenant_id, self.day, self.segment_id
        return _write_files(files, *place, tables, rows_expected=self.rows.num_rows)


def write_segment(
    root: Path, tenant_id: str, day: date, segment_id: str, rows: pa.Table
) -> Segment:
    """`write_segments` for a single one."""
    return write_segments(root, [NewSegment(tenant_id, day, segment_id, rows)])[0]


def write_segments(root: Path, segments: Sequence[NewSegment]) -> list[Segment]:
    """`write_sorted` for rows in any order that fit in memory; refused rows touch no disk.

    The files get their names when all are written, so that the disk syncs them together.
    """
    for new in segments:
        check_rows(new.rows, new.day)
    with new_files(root) as files:
        return [new.write(files) for new in segments]


def write_sorted(
    root: Path,
    tenant_id: str,
    day: date,
    segment_id: str,
    tables: Iterable[pa.Table],
    *,
    rows_expected: int,
) -> Segment:
    """One new Parquet file and its index, with the rows of `tables`, which come newest first.

    AUDIT_SCHEMA throughout, at least one row in all, none outside the UTC `day`.
    When this returns, contents and names have reached the disk. Readers learn of the file from the
    catalog alone, so until a catalog line is committed it may as well not exist; a process that
    dies on the way leaves files for `analytics.storage.audit_files`.
    Raises SchemaMismatch, WrongDay or WrongOrder, leaving no file.
    """
    with new_files(root) as files:
        return _write_files(files, tenant_id, day, segment_id, tables, rows_expected=rows_expected)


def _write_files(
    files: NewFiles,
    tenant_id: str,
    day: date,
    segment_id: str,
    tables: Iterable[pa.Table],
    *,
    rows_expected: int,
) -> Segment:
    # Added first, it is renamed first: a file with the name of a segment has its index.
    pending_index = files.add(index_path(files.root, tenant_id, day, segment_id))
    pending = files.add(segment_path(files.root, tenant_id, day, segment_id))
    statistics = StatisticsBuilder(day)
    index = IndexBuilder(share_bits(-(-rows_expected // ROW_GROUP_ROWS)))
    owner = owner_metadata(tenant_id, day, segment_id)
    _write_rows(pending, statistics.over(tables), index, owner, parquet_options(rows_expected))
    segment = replace(
        statistics.segment(segment_id, tenant_id),
        size=pending.stat().st_size,
        schema_version=SCHEMA_VERSION,
        sha256=sha256_of(pending),
    )
    content = index.content(segment)
    write_with_mode(pending_index, content, _INDEX_MODE)
    return _with_index(segment, content)


def _write_rows(
    path: Path,
    tables: Iterable[pa.Table],
    index: IndexBuilder,
    metadata: dict[str, str],
    options: dict[str, Any],
) -> None:
    with pq.ParquetWriter(path, PARQUET_SCHEMA, **options) as writer:
        writer.add_key_value_metadata({VERSION_KEY.decode(): str(SCHEMA_VERSION), **metadata})
        for rows in in_row_groups(tables):
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
            index.add(rows)


def write_index(root: Path, segment: Segment, index: IndexBuilder) -> Segment:
    """Store what `index` counted as the index file of `segment`, replacing an existing one.

    Returns the segment with the size and digest of its index. When this returns the file is
    durable; readers meet the old one or the new one.
    """
    content = index.content(segment)
    write_synced(segment.index_path(root), content, _INDEX_MODE)
    return _with_index(segment, content)


def _with_index(segment: Segment, content: bytes) -> Segment:
    digest = hashlib.sha256(content).hexdigest()
    return replace(segment, index_size=len(content), index_sha256=digest)


def place_segment(root: Path, segment: Segment, source: Path) -> None:
    """Put a copy of the verified file `source` in the place of the file of `segment`.

    Readers meet the former file or all of the new one; when this returns, it is durable. A process
    that dies on the way leaves a file for `analytics.storage.audit_files`.
    """
    target = segment.path(root)
    mkdir_synced(target.parent, within=root)
    # Not the name of the segment: no sweep would remove it.
    pending = target.with_name(f"restored-{secrets.token_hex(8)}.pending")
    try:
        for _ in FileCopy(source, pending):
            pass
        verify_file(replace(rows_file(root, segment), path=pending))
        pending.rename(target)  # replaces a damaged file at once
    except BaseException:
        pending.unlink(missing_ok=True)
        raise
    fsync(target.parent)


def remove_segments(root: Path, segments: Iterable[Segment]) -> None:
    """Unlink the files of `segments`, which no reader can find; missing ones are no fault."""
    for segment in segments:
        segment.path(root).unlink(missing_ok=True)
        segment.index_path(root).unlink(missing_ok=True)


def in_row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of `tables`, in tables of ROW_GROUP_ROWS rows; the last may be shorter.

    Rows that are so long that they would exceed ROW_GROUP_BYTES come in several tables.
    """
    for rows in by_rows(tables, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
        parts = -(-rows.nbytes // ROW_GROUP_BYTES)
        length = -(-rows.num_rows // parts)
        for start in range(0, rows.num_rows, length):
            yield rows.slice(start, length)


def by_rows(
    tables: Iterable[pa.Table], count_max: int, bytes_max: int | None = None
) -> Iterator[pa.Table]:
    """The rows of `tables`, in tables of `count_max` rows; the last may be shorter.

    With `bytes_max` others may be shorter, too: tables that exceed it together are not joined.
    """
    held: list[pa.Table] = []
    count = size = 0
    for rows in tables:
        if bytes_max is not None:
            size += rows.nbytes
            if count and size > bytes_max:
                yield pa.concat_tables(held)
                held, count, size = [], 0, rows.nbytes
        held.append(rows)
        count += rows.num_rows
        if count >= count_max:
            joined = pa.concat_tables(held)
            whole = count - count % count_max
            for start in range(0, whole, count_max):
                yield joined.slice(start, count_max)
            held, count = [joined.slice(whole)], count - whole
            size = held[0].nbytes
    if count:
        yield pa.concat_tables(held)


def newest_first(rows: pa.Table) -> pa.Table:
    """`rows` in the order every page has: `created_at`, then `seq`, both descending."""
    return rows.sort_by([("created_at", "descending"), ("seq", "descending")])
