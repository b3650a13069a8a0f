"""Claim: under ingest at full speed the newest page stays fast and memory use constant.

CLIENTS processes send requests of BATCH_ROWS rows one after the other and wait when they must (429,
Retry-After); another requests the newest page continuously. At the end all acknowledged rows are
counted. The peer is bare sqlite3 with the same batches, see `bench_ingest`.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_ingest import (
    BATCH_ROWS,
    CLIENTS,
    PATH,
    add_acme,
    encoded,
    items,
    rows_per_s,
    store_bare,
)
from benchmarks.client import Client
from benchmarks.memory import processes_of, watching
from benchmarks.results import record
from benchmarks.server import ADMIN, ServerClient, running_server

PAGE = "/api/v1/admin/orgs/acme/audit?limit=50"
PAGES_EVERY_S = 0.1
BODIES = 64
"""Different bodies, which a client sends repeatedly."""

_RETRY_AFTER = re.compile(rb"\r\nretry-after: (\d+)\r\n", re.IGNORECASE)


@dataclass
class Sent:
    """The responses that one client received."""

    rows: int = 0
    refused: int = 0
    requests_s: list[float] = field(default_factory=list)


def send(port: int, bodies: list[bytes], ends_at: float) -> Sent:
    """Send bodies until `ends_at`, respecting 429."""
    sent = Sent()
    with Client(port, ADMIN) as client:
        while time.monotonic() < ends_at:
            began_at = time.perf_counter()
            body = bodies[len(sent.requests_s) % len(bodies)]
            answer = client.ask("POST", PATH, body, "application/json")
            if answer.status == 429:
                sent.refused += 1
                wait = _RETRY_AFTER.search(answer.head)
                time.sleep(int(wait[1]) if wait else 1)
                continue
            assert answer.status == 200, answer.body
            sent.requests_s.append(time.perf_counter() - began_at)
            sent.rows += BATCH_ROWS
    return sent


def look(port: int, ends_at: float) -> list[float]:
    """Request the newest page until `ends_at`; the seconds each took."""
    took_s = []
    with Client(port, ADMIN) as client:
        while time.monotonic() < ends_at:
            began_at = time.perf_counter()
            answer = client.get(PAGE)
            took_s.append(time.perf_counter() - began_at)
            assert answer.status == 200, answer.body
            time.sleep(PAGES_EVERY_S)
    return took_s


def run(client: ServerClient, seconds: float) -> dict[str, float]:
    """Send and read for this long; the figures."""
    port = client.base_url.port
    assert port is not None
    bodies = [json.dumps(items(number)).encode() for number in range(BODIES)]
    spawning = multiprocessing.get_context("spawn")
    started = spawning.Barrier(CLIENTS + 2)
    with (
        spawning.Pool(CLIENTS + 1, started.wait) as pool,
        watching(lambda: processes_of(client.process_id)) as peak,
    ):
        started.wait()  # before the time begins: a new process imports for seconds
        ends_at = time.monotonic() + seconds
        pages = pool.apply_async(look, (port, ends_at))
        senders = [pool.apply_async(send, (port, bodies, ends_at)) for _ in range(CLIENTS)]
        sent = [principal.get() for principal in senders]
        took_ms = [s * 1000 for s in pages.get()]
    rows = sum(request.rows for request in sent)
    counted = client.get(
        "/api/v1/admin/orgs/acme/audit/summary", params={"since": "2000-01-01"}
    ).json()["total"]
    assert counted >= rows, f"{rows} rows were answered for and {counted} are there"
    cuts = statistics.quantiles(took_ms, n=100)
    requests_ms = [s * 1000 for request in sent for s in request.requests_s]
    return {
        "taken in, rows/s": rows / seconds,
        "refused with 429, requests": sum(request.refused for request in sent),
        "request of 1,000 rows p50, ms": statistics.median(requests_ms),
        "newest page p50, ms": cuts[49],
        "newest page p99, ms": cuts[98],
        "memory at its peak, MB": peak.mb,
    }


def main() -> None:
    """Measure, and print figures beside estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long rows are sent")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        asyncio.run(add_acme(data_dir))
        with running_server(data_dir) as client:
            figures = run(client, minutes * 60)
        batches = [encoded(json.dumps(items(number)).encode()) for number in range(BODIES)]
        bare = rows_per_s(lambda: store_bare(data_dir / "bare.db", batches), BODIES * BATCH_ROWS)
    figures |= {
        "sent for, minutes": minutes,
        "bare sqlite3 to this, ratio": bare / figures["taken in, rows/s"],
    }
    estimated = {
        "taken in, rows/s": 150_000,
        "newest page p50, ms": 10,
        "newest page p99, ms": 100,
        "memory at its peak, MB": 1_000,
    }
    for name, figure in figures.items():
        expected = f"(estimated {estimated[name]:,})" if name in estimated else ""
        print(f"{name:32} {figure:12,.1f} {expected}")
    record("sustained ingest", figures, estimated=estimated)


if __name__ == "__main__":
    main()
