"""Claim: a page costs what it shows, and sums are made once: figures in multiples of /healthz.

One client, one server, the largest tenant of a generated set: the processor time and the duration
of a request of each kind, the start of `serve`, further workers, and idle memory. With `--beside`
also the service of another checkout, in alternating rounds; its /healthz is then the unit.
"""

import argparse
import time
from collections.abc import Iterable
from itertools import islice, repeat
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from benchmarks.bench_ingest import BATCH_ROWS, items
from benchmarks.checkouts import BEFORE, OURS, Checkout, Running, checkouts, medians, show
from benchmarks.client import Client
from benchmarks.lake import ROWS_MAX, rarely_installed
from benchmarks.measuring import nearest
from benchmarks.memory import processes_of, share_mb
from benchmarks.mix import AUDIT
from benchmarks.results import record
from benchmarks.server import ADMIN
from benchmarks.watching import processor_s

FRESH_ROWS: Final = 60_000
KEPT: Final = {"COUNTERSIGN_SEAL_ROWS": "1000000", "COUNTERSIGN_SEAL_AGE_S": "86400"}
"""Fresh rows are not sealed while they are measured."""

IDLE_S: Final = 5.0
WARM: Final = 30
PAGE_ROWS: Final = 50
HEALTHZ: Final = "healthz"
NEWEST: Final = "newest page"
SUMMARY: Final = "summary by day"
FRESH: Final = f"summary by day, {FRESH_ROWS:,} fresh rows"
FIRST_LOOK: Final = "rare package, first look"
IN_HEALTHZ: Final = {HEALTHZ: 1.0, NEWEST: 1.5, SUMMARY: 2.5, FRESH: 2.5}
"""The goal of each, in the processor time of /healthz."""

TAIL: Final = f"{NEWEST}: p99 to p50, ratio"
TAIL_GOAL: Final = 3.0


def of_requests(
    running: Running, name: str, targets: Iterable[str], seconds: float
) -> dict[str, float]:
    """The figures of requests, one after the other, for `seconds` or until `targets` end."""
    process_id, times = running.client.process_id, list[float]()
    with Client(running.client.base_url.port or 80, ADMIN) as client:
        began_s, ends_at = processor_s(process_id), time.monotonic() + seconds
        for target in targets:
            began_at = time.perf_counter()
            answer = client.get(target)
            times.append((time.perf_counter() - began_at) * 1000)
            assert answer.status == 200, answer.body
            if time.monotonic() > ends_at:
                break
        spent_s = processor_s(process_id) - began_s
    times.sort()
    return {
        f"{name}: processor, ms": spent_s * 1000 / len(times),
        f"{name}: p50, ms": nearest(times, 50),
        f"{name}: p99, ms": nearest(times, 99),
    }


def ingest(running: Running) -> None:
    """Add FRESH_ROWS rows."""
    for number in range(FRESH_ROWS // BATCH_ROWS):
        sent = running.client.post(f"{AUDIT}/events", json=items(number))
        assert sent.status_code == 200, sent.text


def one_round(checkout: Checkout, rows: int, seconds: float) -> dict[str, float]:
    """All figures of new servers of `checkout`."""
    page = f"{AUDIT}?limit={PAGE_ROWS}"
    rare = [
        f"{page}&{urlencode({'package': rarely_installed(number)})}"
        for number in range(1, 400)
        if number % 4
    ]
    asked = {
        FIRST_LOOK: rare,
        HEALTHZ: repeat("/healthz"),
        NEWEST: repeat(page),
        SUMMARY: repeat(f"{AUDIT}/summary?bucket=day"),
    }
    with checkout.filled(rows) as data_dir, checkout.serving(data_dir, KEPT) as running:
        process_id = running.client.process_id
        figures = {
            "serve until ready, s": running.ready_s,
            "serve until ready: processor, s": processor_s(process_id),
        }
        time.sleep(IDLE_S)
        alone_s = processor_s(process_id)
        figures["idle memory, MB"] = sum(map(share_mb, processes_of(process_id)))
        for name, targets in asked.items():
            if name != FIRST_LOOK:
                of_requests(running, name, islice(targets, WARM), seconds)
            figures |= of_requests(running, name, targets, seconds)
        ingest(running)
        of_requests(running, FRESH, repeat(f"{AUDIT}/summary?bucket=day", WARM), seconds)
        figures |= of_requests(running, FRESH, asked[SUMMARY], seconds)
    spent_s, memory_mb = alone_s, figures["idle memory, MB"]
    # `/readyz` does not say how many processes are ready: what a further one costs does. The second
    # brings the supervisor, and the process that those which serve are forked from.
    for name, workers in (("the second worker", "2"), ("a further worker", "3")):
        several = KEPT | {"COUNTERSIGN_WORKERS": workers}
        with checkout.filled(rows) as data_dir, checkout.serving(data_dir, several) as running:
            time.sleep(IDLE_S)
            process_id = running.client.process_id
            now_s = processor_s(process_id)
            now_mb = sum(map(share_mb, processes_of(process_id)))
        figures[f"{name}: processor, s"] = now_s - spent_s
        figures[f"{name}: memory, MB"] = now_mb - memory_mb
        spent_s, memory_mb = now_s, now_mb
    return figures


def in_healthz(table: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Figures in multiples of /healthz, of the version before if it ran; p99 in its median."""
    lines: dict[str, dict[str, float]] = {}
    for what, of_healthz in (("processor", "processor"), ("p50", "p50"), ("p99", "p50")):
        unit = table[f"{HEALTHZ}: {of_healthz}, ms"]
        of_before = unit.get(BEFORE, unit[OURS])
        for name in (*IN_HEALTHZ, FIRST_LOOK):
            figures = table[f"{name}: {what}, ms"]
            lines[f"{name}: {what} in healthz, ratio"] = {
                column: figure / of_before for column, figure in figures.items()
            }
    medians_ms = table[f"{NEWEST}: p50, ms"]
    lines[TAIL] = {
        column: p99 / medians_ms[column] for column, p99 in table[f"{NEWEST}: p99, ms"].items()
    }
    return lines


def goals(table: dict[str, dict[str, float]]) -> dict[str, float]:
    """What ours should reach."""
    reach = {f"{name}: processor in healthz, ratio": most for name, most in IN_HEALTHZ.items()}
    reach |= {
        f"{NEWEST}: p99, ms": TAIL_GOAL * table[f"{NEWEST}: p50, ms"][OURS],
        TAIL: TAIL_GOAL,
        "a further worker: processor, s": 0.1,
        "idle memory, MB": 130,
    }
    start = table["serve until ready, s"]
    return reach | ({"serve until ready, s": 0.6 * start[BEFORE]} if BEFORE in start else {})


def main() -> None:
    """Measure; print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX:,}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--beside", type=Path, help="another checkout with its own .venv")
    given = parser.parse_args()
    sides = checkouts(given.beside)
    rounds: dict[str, list[dict[str, float]]] = {side.column: [] for side in sides}
    for _ in range(given.rounds):
        for side in sides:
            rounds[side.column].append(one_round(side, given.rows, given.seconds))
    table = medians(rounds)
    table |= in_healthz(table)
    expected = goals(table)
    show(table, expected)
    record("requests", table, estimated=expected)


if __name__ == "__main__":
    main()
