"""Claim: 100,000 rows per second are imported, each of them validated.

Ours is the whole import: digest, reading, validation, grouping by day, durable segments, commit.
The peers read the same file and write it as one Parquet file, unvalidated, unsorted and unsynced:
DuckDB in one statement, and for Parquet pyarrow batch by batch.
"""

import asyncio
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.imports.chunks import FileKind, ImportFormat
from analytics.model.filters import Query
from analytics.query.engine import Engine, EngineLimits
from analytics.query.ordered_scan import OrderedScan
from analytics.query.scans import Resources
from analytics.storage.segment_store import LocalFolder
from analytics.storage.snapshot import Snapshot
from benchmarks.lake import largest_tenant, rows_asked_for
from benchmarks.results import record
from service.access.callers import cli_caller
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.app.logs import configure_logs
from service.audit.importer import ImportFile, ImportJob, ImportWatch
from service.core.clock import utc_now
from service.core.settings import Settings
from service.orgs.organisations import create_org

DAYS = 10
ROUNDS = 2
AUDIT_CONTEXT = cli_caller("org_platform").audit_context
ESTIMATED = {"ndjson": 100, "csv": 80, "parquet": 90}
READERS = {"ndjson": "read_json", "csv": "read_csv", "parquet": "read_parquet"}


def write_file(path: Path, folder: Path, snapshot: Snapshot, file_format: ExportFormat) -> int:
    """Write the last DAYS of the tenant as an export does; the number of rows."""
    segments = sorted(snapshot.segments, key=lambda one: one.day)[-DAYS:]
    last_days = snapshot.with_segments(segments)
    settings = Settings(data_dir=folder)
    limits = EngineLimits(
        settings.engine_memory_mb, settings.engine_temp_mb, settings.engine_threads
    )
    engine = Engine(folder / "audit", settings.temp_dir, limits)  # an ordered scan does not open it
    tables = OrderedScan(last_days, Query()).stream(
        Resources(engine, LocalFolder(folder / "audit"))
    )
    with path.open("wb") as file:
        for piece in export_pieces(tables, snapshot.tenant_id, FileEncoding(file_format)):
            file.write(piece.content)
    return sum(segment.rows for segment in segments)


async def import_once(folder: Path, path: Path) -> float:
    """The seconds an import into a fresh data dir takes."""
    services = build_services(await prepare(Settings(data_dir=folder)), utc_now)
    async with services.store.write() as work:
        org = await create_org(work, "acme", "enterprise", AUDIT_CONTEXT)
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        kind = FileKind(ImportFormat(path.suffix.removeprefix(".")))
        job = ImportJob(
            org, ImportFile(path.name, file, size, kind), AUDIT_CONTEXT, is_partial=False
        )
        began_at = time.perf_counter()
        done = await services.importer.take(job, ImportWatch(lambda _: None, lambda _: None), 0.0)
        took_s = time.perf_counter() - began_at
    assert done.rows
    assert not done.refused
    await services.close()
    return took_s


def duckdb_once(path: Path, target: Path) -> None:
    """The file converted to Parquet by DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        reader = READERS[path.suffix.removeprefix(".")]
        connection.execute(
            f"COPY (FROM {reader}('{path}')) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
        )


def pyarrow_once(path: Path, target: Path) -> None:
    """The same by pyarrow, a batch at a time."""
    source = pq.ParquetFile(path)
    with pq.ParquetWriter(target, source.schema_arrow, compression="zstd") as writer:
        for batch in source.iter_batches(use_threads=False):
            writer.write_batch(batch)


def best_s(once: Callable[[Path], float], path: Path) -> float:
    """The fastest of ROUNDS, each in a new folder: interference can only add time."""
    took_s = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            took_s.append(once(Path(folder) / path.name))
    return min(took_s)


def timed(action: Callable[[Path, Path], None], path: Path) -> float:
    """How long the peer's `action` takes."""

    def once(target: Path) -> float:
        began_at = time.perf_counter()
        action(path, target)
        return time.perf_counter() - began_at

    return best_s(once, path)


def ours(path: Path) -> float:
    """How long an import takes."""
    return best_s(lambda folder: asyncio.run(import_once(folder, path)), path)


def main() -> None:
    """Measure, and print figures beside estimates."""
    folder, total = rows_asked_for(__doc__)
    snapshot = largest_tenant(folder, total)
    configure_logs("warning")
    figures: dict[str, float] = {}
    print("thousand rows/s           ours (estimated)   DuckDB, one thread    pyarrow")
    with tempfile.TemporaryDirectory() as name:
        for file_format in (ExportFormat.NDJSON, ExportFormat.CSV, ExportFormat.PARQUET):
            path = Path(name) / f"audit.{file_format}"
            rows = write_file(path, folder, snapshot, file_format)
            print(f"{file_format:8} {path.stat().st_size / 1e6:6.0f} MB", end="")
            figures[f"{file_format}, rows/s"] = rows / ours(path)
            figures[f"{file_format} by DuckDB, rows/s"] = rows / timed(duckdb_once, path)
            print(
                f"{figures[f'{file_format}, rows/s'] / 1e3:14.0f} ({ESTIMATED[file_format]:9})",
                end="",
            )
            print(f"{figures[f'{file_format} by DuckDB, rows/s'] / 1e3:21.0f}", end="")
            if file_format is ExportFormat.PARQUET:
                figures["parquet by pyarrow, rows/s"] = rows / timed(pyarrow_once, path)
                print(f"{figures['parquet by pyarrow, rows/s'] / 1e3:11.0f}", end="")
            print(flush=True)
    estimated = {f"{name}, rows/s": thousand * 1e3 for name, thousand in ESTIMATED.items()}
    record("import", figures, estimated=estimated)


if __name__ == "__main__":
    main()
