"""Claim: exports produce at least 1.1 million rows/s, in constant memory for any number of rows.

Ours is measured twice: produced and discarded, and over HTTP with everything that belongs to it.
The peer is DuckDB copying the same files, in the same order, to a null device; the limit is an
encoder alone that already has the same rows in memory.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx2
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.export.wire import wire_table
from analytics.export.writers import FileEncoding, export_pieces
from analytics.model.filters import Query
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query.engine import Engine, EngineLimits
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.query.scans import Resources
from analytics.storage.segment_store import LocalFolder
from analytics.storage.snapshot import Snapshot
from benchmarks.lake import largest_tenant, rows_asked_for
from benchmarks.memory import line_mb
from benchmarks.results import record
from benchmarks.served import SLUG, served
from benchmarks.server import ServerClient

ROUNDS = 2
PATH = f"/api/v1/admin/orgs/{SLUG}/audit/export"
NOWHERE = Path(os.devnull)
LIMITS = EngineLimits(memory_mb=1024, temp_mb=4096, threads=2)
ESTIMATED = {"csv": 1.2, "json": 1.2, "ndjson": 1.2, "parquet": 1.8}
"""Million rows/s out of the engine."""

ESTIMATED_EXTRA_MB = 300
COPIES = {
    "csv": "FORMAT csv",
    "json": "FORMAT json, ARRAY true",
    "ndjson": "FORMAT json",
    "parquet": "FORMAT parquet, COMPRESSION zstd",
}


@dataclass(frozen=True)
class Took:
    """Wall-clock seconds, and CPU seconds of all cores."""

    seconds: float
    core_seconds: float


def timed(work: Callable[[], object]) -> Took:
    """The cost of `work`."""
    began_at, busy = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began_at, time.process_time() - busy)


def median(work: Callable[[], object]) -> Took:
    """The median wall-clock time of ROUNDS rounds, and the fewest CPU seconds."""
    rounds = [timed(work) for _ in range(ROUNDS)]
    return Took(
        statistics.median(timing.seconds for timing in rounds),
        min(timing.core_seconds for timing in rounds),
    )


def make(reader: Reader, snapshot: Snapshot, export_format: ExportFormat) -> None:
    """Ours: read, sorted, encoded, escaped, hashed, and discarded."""
    tables = reader.stream(snapshot, Query())
    for piece in export_pieces(tables, snapshot.tenant_id, FileEncoding(export_format)):
        rows = piece.rows
    assert rows == sum(segment.rows for segment in snapshot.segments)


def copy_with_duckdb(snapshot: Snapshot, root: Path, export_format: ExportFormat) -> None:
    """A day at a time, like ours; payload and ids as stored."""
    with duckdb.connect(":memory:", config={"threads": LIMITS.threads}) as connection:
        for segment in reversed(snapshot.segments):
            connection.execute(
                f"COPY (SELECT * FROM read_parquet($file, hive_partitioning = false)"
                f" ORDER BY created_at DESC, seq DESC) TO '{NOWHERE}' ({COPIES[export_format]})",
                {"file": str(segment.path(root))},
            )


def encode_csv(table: pa.Table) -> None:
    """Polars; instants in our format."""
    _frame(table).write_csv(NOWHERE, datetime_format="%Y-%m-%dT%H:%M:%S%.6fZ")


def encode_ndjson(table: pa.Table) -> None:
    """Polars; the payload as a string, because it cannot embed raw JSON."""
    _frame(table).write_ndjson(NOWHERE)


def encode_parquet(table: pa.Table) -> None:
    """Pyarrow with its defaults, except for the compression."""
    pq.write_table(table, NOWHERE, compression="zstd")


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))


ENCODERS: dict[str, Callable[[pa.Table], None]] = {
    "csv": encode_csv,
    "json": encode_ndjson,  # polars writes an array only of what it holds at once
    "ndjson": encode_ndjson,
    "parquet": encode_parquet,
}


def encode(snapshot: Snapshot, root: Path, export_format: ExportFormat) -> Took:
    """The encoder alone, a day at a time; reading it is not counted."""
    taken = [
        timed(lambda table=table: ENCODERS[export_format](table))  # type: ignore[misc]
        for table in _days(snapshot, root)
    ]
    return Took(
        sum(timing.seconds for timing in taken), sum(timing.core_seconds for timing in taken)
    )


def _days(snapshot: Snapshot, root: Path) -> Iterator[pa.Table]:
    for segment in reversed(snapshot.segments):
        rows = pq.read_table(segment.path(root), columns=AUDIT_SCHEMA.names, partitioning=None)
        yield wire_table(rows.cast(AUDIT_SCHEMA), snapshot.tenant_id)


def compare(snapshot: Snapshot, folder: Path, count: int) -> dict[str, float]:
    """Ours without HTTP, the peer and the limit, for every format; in rows a second."""
    figures: dict[str, float] = {}
    root = folder / "audit"
    engine = Engine(root, folder, LIMITS)
    reader = Reader(Planner(), Resources(engine, LocalFolder(root)))
    print("million rows/s (core-seconds a million rows)  ours, estimated  DuckDB  encoder alone")
    for file_format in ExportFormat:
        taken = [
            median(lambda file_format=file_format: make(reader, snapshot, file_format)),  # type: ignore[misc]
            median(lambda file_format=file_format: copy_with_duckdb(snapshot, root, file_format)),  # type: ignore[misc]
            encode(snapshot, root, file_format),
        ]
        for name, took in zip(("made", "DuckDB", "encoder alone"), taken, strict=True):
            figures[f"{file_format} {name}, rows/s"] = count / took.seconds
            million = took.core_seconds / count * 1e6
            figures[f"{file_format} {name}, core-seconds a million rows"] = million
        ours, duck, alone = (
            f"{count / took.seconds / 1e6:5.2f} ({took.core_seconds / count * 1e6:4.2f})"
            for took in taken
        )
        print(f"{file_format:8} {ours}  est. {ESTIMATED[file_format]:4.2f}  {duck}  {alone}")
    engine.close()
    return figures


def download(client: httpx2.Client, **query: str) -> int:
    """One whole export; its number of bytes."""
    size = 0
    plain = {"accept-encoding": "identity"}
    with client.stream("GET", PATH, params=query, headers=plain) as response:
        assert response.status_code == 200, response.read()
        assert int(response.headers["x-row-count"]) > 0
        for piece in response.iter_raw():
            size += len(piece)
    return size


def measure(client: ServerClient, count: int, **query: str) -> dict[str, float]:
    """The median of ROUNDS exports, and the peak growth of the server's memory."""
    process = Path(f"/proc/{client.process_id}")
    (process / "clear_refs").write_text("5")  # the peak starts over
    before = line_mb(process / "status", "VmRSS")
    sizes: list[int] = []
    took = median(lambda: sizes.append(download(client, **query)))
    rose = line_mb(process / "status", "VmHWM") - before
    name = " ".join(query.values())
    print(
        f"{name:12} {sizes[0] / 1e6:8.0f} MB"
        f" {count / took.seconds / 1e6:8.2f} million rows/s,"
        f" memory rose by {rose:.0f} MB"
        f" (estimated: under {ESTIMATED_EXTRA_MB})"
    )
    return {f"{name} over HTTP, rows/s": count / took.seconds, f"{name}: memory rose by, MB": rose}


def main() -> None:
    """Measure, and print figures beside estimates."""
    folder, rows = rows_asked_for(__doc__)
    snapshot = largest_tenant(folder, rows)
    count = sum(segment.rows for segment in snapshot.segments)
    print(f"{count:,} rows of the largest tenant; {rows:,} rows in all")
    figures = {"of the tenant, rows": float(count)} | compare(snapshot, folder, count)
    with served(snapshot.segments, folder) as client:
        download(client, format="csv")
        queries: list[dict[str, Any]] = [
            {"format": file_format.value} for file_format in ExportFormat
        ]
        queries += [{"format": "ndjson", "compress": codec.value} for codec in Compression]
        for query in queries:
            figures |= measure(client, count, **query)
    estimated = {f"{name} made, rows/s": million * 1e6 for name, million in ESTIMATED.items()}
    record("export", figures, estimated=estimated)


if __name__ == "__main__":
    main()
