"""Segments: immutable Parquet files, each one tenant and one UTC day, rows newest first."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.durable import fsync, mkdir_synced
from analytics.instants import midnight, utc_day
from analytics.layout import segment_path
from analytics.schema import AUDIT_SCHEMA

# Measured: small row groups let a rare value skip most of the file, and what repeats within a
# day (everything but payload and the ids) compresses best as a dictionary.
_BLOOM: Final = {"ndv": 20_000, "fpp": 0.01}
PARQUET_OPTIONS: Final[dict[str, Any]] = {
    "row_group_size": 32_768,
    "compression": "zstd",
    "use_dictionary": True,
    "write_page_index": True,
    "bloom_filter_options": dict.fromkeys(
        ("package_name", "actor", "subject", "oidc_binding_id"), _BLOOM
    ),
}


class SchemaMismatch(ValueError):
    """Rows that are not AUDIT_SCHEMA."""


class WrongDay(ValueError):
    """Rows outside the day of their segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What the catalog knows of one file without opening it.

    `event_counts` and `decision_counts` map each value to its number of rows; the empty string
    stands for null. `size` is in bytes.
    """

    segment_id: str
    tenant_id: str
    day: date
    rows: int
    size: int
    min_created_at: datetime
    max_created_at: datetime
    min_seq: int
    max_seq: int
    event_counts: dict[str, int]
    decision_counts: dict[str, int]

    def path(self, root: Path) -> Path:
        """Where the file lies below the audit folder `root`."""
        return segment_path(root, self.tenant_id, self.day, self.segment_id)


def write_segment(
    root: Path, tenant_id: str, day: date, segment_id: str, rows: pa.Table
) -> Segment:
    """One new Parquet file with `rows`: AUDIT_SCHEMA, not empty, none outside the UTC `day`.

    When this returns, contents and name have reached the disk. Readers learn of the file from the
    catalog alone, so until a catalog line is committed it may as well not exist; a process that
    dies on the way leaves a file for `analytics.orphans`.
    Raises SchemaMismatch or WrongDay, having written nothing.
    """
    check_rows(rows, day)
    target = segment_path(root, tenant_id, day, segment_id)
    mkdir_synced(target.parent, within=root)
    pending = target.with_suffix(".pending")
    try:
        pq.write_table(newest_first(rows), pending, **PARQUET_OPTIONS)
        fsync(pending)
    except BaseException:
        # Left on a full disk, it would keep the room that everybody else needs.
        pending.unlink(missing_ok=True)
        raise
    pending.rename(target)  # within one folder, so readers meet all of it or none
    fsync(target.parent)  # a synced file under an unsynced name is lost all the same
    return describe(segment_id, tenant_id, day, rows, target.stat().st_size)


def check_rows(rows: pa.Table, day: date) -> None:
    """Raise SchemaMismatch or WrongDay unless `rows` may be a segment of `day`."""
    if not rows.schema.equals(AUDIT_SCHEMA) or rows.num_rows == 0:
        raise SchemaMismatch("a segment holds at least one row of AUDIT_SCHEMA")
    if any(rows.column(field.name).null_count for field in AUDIT_SCHEMA if not field.nullable):
        raise SchemaMismatch("a required column holds a null")
    first, last = _bounds(rows, "created_at")
    if first < midnight(day) or utc_day(last) != day:
        raise WrongDay(f"rows from {first} to {last} in the segment of {day}")


def newest_first(rows: pa.Table) -> pa.Table:
    """`rows` in the order every page has: `created_at`, then `seq`, both descending."""
    return rows.sort_by([("created_at", "descending"), ("seq", "descending")])


def describe(segment_id: str, tenant_id: str, day: date, rows: pa.Table, size: int) -> Segment:
    """The catalog's line for a file of `rows`."""
    min_created_at, max_created_at = _bounds(rows, "created_at")
    min_seq, max_seq = _bounds(rows, "seq")
    return Segment(
        segment_id=segment_id,
        tenant_id=tenant_id,
        day=day,
        rows=rows.num_rows,
        size=size,
        min_created_at=min_created_at,
        max_created_at=max_created_at,
        min_seq=min_seq,
        max_seq=max_seq,
        event_counts=_counts(rows, "event"),
        decision_counts=_counts(rows, "decision"),
    )


def _bounds(rows: pa.Table, column: str) -> tuple[Any, Any]:
    bounds = pc.min_max(rows.column(column)).as_py()
    return bounds["min"], bounds["max"]


def _counts(rows: pa.Table, column: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for entry in pc.value_counts(rows.column(column)).to_pylist():
        counts[entry["values"] or ""] += entry["counts"]
    return dict(counts)
