"""Claim: an export runs at the speed of its encoder, in the same memory for any number of rows.

Ours is everything: HTTP, reading and ordering the segments, encoding, the formula guard, hashing,
recording. The peer is the encoder alone: polars or pyarrow writing the same rows, which it
already has as Arrow tables in memory, in the same format to a file.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analytics.compression import Compression
from analytics.exports import ExportFormat
from analytics.formats import wire_table
from analytics.schema import AUDIT_SCHEMA
from benchmarks.results import record
from benchmarks.server import running_server
from service.access.callers import cli_caller
from service.clock import utc_now
from service.ids import new_id
from service.orgs.changes import create_org
from service.prepare import prepare
from service.services import build_services
from service.settings import Settings
from service.store.catalog import add_segment
from service.store.journal import take_seq

DAYS = 20
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 3
PATH = "/api/v1/admin/orgs/acme/audit/export"
ESTIMATED_RATIO = {"csv": 0.6, "json": 0.5, "ndjson": 0.5, "parquet": 0.6}
ESTIMATED_EXTRA_MB = 300


@dataclass(frozen=True)
class Measured:
    """Seconds of the median round, and how far the server's memory rose."""

    seconds: float
    extra_mb: float
    size: int


def day_of_rows(count: int) -> pa.Table:
    """A day of installs, skewed as real ones are; the first of all days, the first seqs."""
    numbers = range(count)
    at = [FIRST + timedelta(seconds=n * 86_400 / count) for n in numbers]
    package = [f"package-{(n * n) % 997}" for n in numbers]
    payload = [json.dumps({"rule_id": f"r{n % 40}", "source": "osv", "n": n}) for n in numbers]
    columns = {
        "seq": numbers,
        "created_at": at,
        "received_at": at,
        "event": ["blocklist_hit" if n % 50 == 0 else "install_allowed" for n in numbers],
        "package_name": package,
        "version": [f"{n % 9}.{n % 7}.0" for n in numbers],
        "decision": ["BLOCKED" if n % 50 == 0 else "ALLOWED" for n in numbers],
        "decision_reason": payload,
        "verdict_source": ["proxy"] * count,
        "actor_tenant_id": [None] * count,
        "actor": [f"key_{n % 60}" for n in numbers],
        "actor_source": ["api_key"] * count,
        "subject": [f"repo:acme/service-{n % 80}" if n % 2 else None for n in numbers],
        "oidc_binding_id": [None] * count,
        "request_id": [""] * count,
        "source_ip": [f"192.0.2.{n % 250}" for n in numbers],
        "payload": payload,
    }
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in AUDIT_SCHEMA], schema=AUDIT_SCHEMA
    )


def at_another(rows: pa.Table, day: date, first_seq: int) -> pa.Table:
    """`rows` as if they had come in on `day`."""
    seq = pc.add(rows["seq"], pa.scalar(first_seq, pa.int64()))
    later = pa.scalar(datetime(day.year, day.month, day.day, tzinfo=UTC) - FIRST)
    at = pc.add(rows["created_at"], later)
    digits = pc.utf8_lpad(pc.cast(seq, pa.string()), 24, "0")
    changed = {
        "seq": seq,
        "created_at": at,
        "received_at": at,
        "request_id": pc.binary_join_element_wise("req_", digits, ""),
    }
    return pa.table(
        [changed.get(name, rows[name]) for name in AUDIT_SCHEMA.names], schema=AUDIT_SCHEMA
    )


async def fill(data_dir: Path, rows: int) -> list[pa.Table]:
    """An organisation `acme` with DAYS sealed days; their rows, a table each, newest first."""
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    template = day_of_rows(rows // DAYS)
    tables: list[pa.Table] = []
    async with services.store.write() as work:
        org = await create_org(work, "acme", "org", cli_caller("org_platform").stamp)
        for age in range(DAYS, 0, -1):
            day = datetime.now(UTC).date() - timedelta(days=age)
            own = at_another(template, day, await take_seq(work.session, rows // DAYS))
            segment = await services.lake.store_rows(org.id, day, new_id("seg"), own)
            await add_segment(work.session, segment, work.now)
            tables.append(own)
    await services.close()
    return [wire_table(own, org.id) for own in reversed(tables)]


def memory_mb(pid: int, name: str) -> float:
    """A line of the process's memory figures: VmRSS is now, VmHWM the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def child_pid() -> int:
    """The one process this one has started: the server."""
    (pid,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(pid)


def download(client: httpx.Client, **query: str) -> int:
    """One whole export; how many bytes came."""
    size = 0
    plain = {"accept-encoding": "identity"}
    with client.stream("GET", PATH, params=query, headers=plain) as response:
        assert response.status_code == 200, response.read()
        assert int(response.headers["x-row-count"]) > 0
        for piece in response.iter_raw():
            size += len(piece)
    return size


def measure(client: httpx.Client, **query: str) -> Measured:
    """The median of ROUNDS exports, and the highest the server's memory rose above its start."""
    pid = child_pid()
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
    before = memory_mb(pid, "VmRSS")
    durations = []
    for _ in range(ROUNDS):
        began_at = time.perf_counter()
        size = download(client, **query)
        durations.append(time.perf_counter() - began_at)
    return Measured(statistics.median(durations), memory_mb(pid, "VmHWM") - before, size)


def write_csv(tables: list[pa.Table], path: Path) -> None:
    """Polars, a table at a time; instants as we spell them."""
    with path.open("wb") as file:
        for table in tables:
            _frame(table).write_csv(
                file, include_header=False, datetime_format="%Y-%m-%dT%H:%M:%S%.6fZ"
            )


def write_ndjson(tables: list[pa.Table], path: Path) -> None:
    """Polars, a table at a time, with the payload as a string: it cannot nest JSON as it is."""
    with path.open("wb") as file:
        for table in tables:
            _frame(table).write_ndjson(file)


def write_parquet(tables: list[pa.Table], path: Path) -> None:
    """Pyarrow with its defaults, but for the compression."""
    with pq.ParquetWriter(path, tables[0].schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))


PEERS: dict[str, Callable[[list[pa.Table], Path], None]] = {
    "csv": write_csv,
    "json": write_ndjson,  # polars writes an array only of what it holds at once
    "ndjson": write_ndjson,
    "parquet": write_parquet,
}


def measure_peer(export_format: str, tables: list[pa.Table], folder: Path) -> float:
    """The median seconds of ROUNDS files."""
    durations = []
    for _ in range(ROUNDS):
        began_at = time.perf_counter()
        PEERS[export_format](tables, folder / "peer")
        durations.append(time.perf_counter() - began_at)
    return statistics.median(durations)


def main() -> None:
    """Measure, and print figures beside estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_200_000, help="a multiple of 20")
    rows = parser.parse_args().rows // DAYS * DAYS
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        tables = asyncio.run(fill(data_dir, rows))
        with running_server(data_dir) as client:
            figures: dict[str, float] = {}
            download(client, format="csv")
            print(f"{rows:,} rows, thousand rows/s    ours    peer   ratio  (estimated)  extra RSS")
            for one in ExportFormat:
                ours = measure(client, format=one)
                peer = measure_peer(one, tables, Path(folder))
                figures[f"{one}, rows/s"] = rows / ours.seconds
                figures[f"{one}, peer"] = rows / peer
                figures[f"{one}, extra MB"] = ours.extra_mb
                print(
                    f"{one:10} {ours.size / 1e6:8.0f} MB {rows / ours.seconds / 1e3:14.0f}"
                    f"{rows / peer / 1e3:8.0f}{peer / ours.seconds:8.2f}"
                    f"  ({ESTIMATED_RATIO[one]:9.2f}) {ours.extra_mb:7.0f} MB"
                    f"  (estimated under {ESTIMATED_EXTRA_MB})"
                )
            for compression in Compression:
                ours = measure(client, format="ndjson", compress=compression)
                figures[f"ndjson {compression}, rows/s"] = rows / ours.seconds
                print(
                    f"ndjson {compression:4} {ours.size / 1e6:7.0f} MB"
                    f" {rows / ours.seconds / 1e3:14.0f}{'':26} {ours.extra_mb:11.0f} MB"
                )
            record("export", figures | {"rows": float(rows)})


if __name__ == "__main__":
    main()
