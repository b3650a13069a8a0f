"""Claim: ingest over HTTP reaches a good part of the speed at which SQLite can store the rows.

The peer is the minimum that any durable store must do: bare sqlite3, one process, the same
batches as Arrow IPC, one synced commit for each. It validates nothing and has no HTTP.

Then, in alternating rounds, the same requests to ours and to the obvious alternative: Quart and
asyncpg over PostgreSQL, with the same checks of form and a synced commit before each answer.
"""

import argparse
import asyncio
import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2
import psycopg

from analytics.model.ingest_validation import read_items
from analytics.model.row_validation import AcceptedInterval
from analytics.model.rows import AuditContext, VerdictSource
from analytics.storage.journal_batches import encode_days
from benchmarks.checkouts import OURS, medians, show
from benchmarks.client import Client
from benchmarks.engines import Send, Served
from benchmarks.engines.postgres import create_indexes, create_table
from benchmarks.measuring import ingest as measured
from benchmarks.peer_app import EVENTS, serving_peer
from benchmarks.postgres_server import PostgresServer
from benchmarks.results import record
from benchmarks.server import ADMIN, running_server
from service.access.callers import cli_caller
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.settings import Settings
from service.orgs.organisations import create_org

PATH = "/api/v1/admin/orgs/acme/audit/events"
CLIENTS = 4
BATCH_ROWS = 1_000
ROWS = 240_000
PEER: Final = "Quart, asyncpg"
ENUMS: Final = {
    "event": ["blocklist_hit", "cooldown_active", "install_allowed", "oss_first_party"],
    "decision": ["ALLOWED", "BLOCKED"],
    "verdict_source": ["proxy"],
    "actor_source": ["admin_token"],
    "ecosystem": ["npm", "pypi"],
}
"""The types of the peer's table."""


@dataclass(frozen=True)
class Case:
    """So many `rows` a request, from so many `clients`; `goal` is the ratio to reach, if any."""

    rows: int
    clients: int
    goal: float | None = None

    @property
    def name(self) -> str:
        """As the table names it."""
        return f"{self.rows:,} a request x {self.clients}"


CASES: Final = (Case(1, 1, 0.5), Case(1, 16, 1.0), Case(BATCH_ROWS, 16))


async def add_acme(data_dir: Path) -> None:
    """An organisation to send rows to."""
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    async with services.store.write() as work:
        await create_org(work, "acme", "org", cli_caller("org_platform").audit_context)
    await services.close()


def items(number: int) -> list[dict[str, object]]:
    """One unique batch: blocked and allowed installs of many packages."""
    return [
        {
            "event": "blocklist_hit",
            "packageName": f"package-{(number * 37 + row) % 5_000}",
            "version": f"1.{row % 50}.{number % 10}",
            "envelope": {"rule_id": f"GHSA-{(number + row) % 900:04}", "source": "osv"},
        }
        if row % 10 == 0
        else {
            "event": "install_allowed",
            "packageName": f"package-{(number * 37 + row) % 5_000}",
            "version": f"1.{row % 50}.{number % 10}",
        }
        for row in range(BATCH_ROWS)
    ]


def send(client: httpx2.Client, bodies: list[bytes]) -> None:
    """Send all bodies one after the other; each response means that its rows are durable."""
    with httpx2.Client(base_url=client.base_url, headers=client.headers, timeout=60) as own:
        for body in bodies:
            answer = own.post(PATH, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text
            assert answer.json() == {"accepted": BATCH_ROWS, "rejected": []}


def ingest(client: httpx2.Client, bodies: list[bytes]) -> None:
    """Send all bodies from CLIENTS concurrent threads."""
    senders = [
        threading.Thread(target=send, args=(client, bodies[number::CLIENTS]))
        for number in range(CLIENTS)
    ]
    for principal in senders:
        principal.start()
    for principal in senders:
        principal.join()


def encoded(body: bytes) -> bytes:
    """The batch as the journal holds it."""
    audit_context = AuditContext("system:admin-token", "admin_token", VerdictSource.PROXY)
    raw = [json.dumps(item).encode() for item in json.loads(body)]
    rows, rejected = read_items(raw, audit_context, AcceptedInterval(datetime.now(UTC), None))
    assert not rejected
    (batch,) = encode_days(rows)
    return batch.data


def store_bare(path: Path, batches: list[bytes]) -> None:
    """Only one synced commit for each batch."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE journal (first_seq INTEGER PRIMARY KEY, data BLOB)")
    for number, batch in enumerate(batches):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO journal VALUES (?, ?)", (number * BATCH_ROWS, batch))
        connection.execute("COMMIT")
    connection.close()


def rows_per_s(action: Callable[[], object], rows: int) -> float:
    """Rows per second, for an action that stores `rows`."""
    began_at = time.perf_counter()
    action()
    return rows / (time.perf_counter() - began_at)


@contextmanager
def serving_ours() -> Iterator[Served]:
    """A new server with an organisation, in the block."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(add_acme(Path(folder)))
        with running_server(Path(folder)) as client:
            yield Served(client.base_url.port or 80, PATH, ADMIN)


@contextmanager
def serving_the_peer() -> Iterator[Served]:
    """The peer over a new cluster with the table and its indexes, in the block."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "postgres")
        server.start()
        try:
            with psycopg.connect(
                host=str(server.socket), user="bench", dbname="postgres"
            ) as connection:
                create_table(connection, ENUMS)
                create_indexes(connection)
            with serving_peer(server.socket) as served:
                yield Served(served.port, EVENTS, served.headers)
        finally:
            server.stop()


def measure_case(served: Served, case: Case, seconds: float) -> dict[str, float]:
    """Rows per second, and the median of a request; every answer is checked."""
    body = json.dumps(items(1)[: case.rows]).encode()

    @contextmanager
    def opened() -> Iterator[Send]:
        with Client(served.port, served.headers) as client:

            def send_one() -> None:
                answer = client.ask("POST", served.path, body, "application/json")
                assert answer.status == 200, answer.body
                assert json.loads(answer.body) == {"accepted": case.rows, "rejected": []}

            yield send_one

    figures = measured(opened, case.clients, case.rows, seconds)
    return {
        f"{case.name}, rows/s": figures["rows_per_s"],
        f"{case.name}: p50, ms": figures["request_ms"],
    }


def beside_the_peer(rounds: int, seconds: float) -> None:
    """Measure ours and the peer in alternating rounds; print and record."""
    by_column: dict[str, list[dict[str, float]]] = {OURS: [], PEER: []}
    with serving_ours() as ours, serving_the_peer() as peer:
        for _ in range(rounds):
            figures: dict[str, dict[str, float]] = {OURS: {}, PEER: {}}
            for case in CASES:
                for column, served in ((PEER, peer), (OURS, ours)):
                    figures[column] |= measure_case(served, case, seconds)
                rate = f"{case.name}, rows/s"
                figures[OURS][f"{case.name}: ours to the peer's, ratio"] = (
                    figures[OURS][rate] / figures[PEER][rate]
                )
            for column, every in by_column.items():
                every.append(figures[column])
    table = medians(by_column)
    goals = {f"{case.name}: ours to the peer's, ratio": case.goal for case in CASES if case.goal}
    show(table, goals)
    record("ingest beside the peer", table, estimated=goals)


def main() -> None:
    """Measure, and print figures beside estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"a multiple of {BATCH_ROWS:,}")
    parser.add_argument("--rounds", type=int, default=5, help="beside the peer")
    parser.add_argument("--seconds", type=float, default=3, help="of each case and side")
    given = parser.parse_args()
    measure_alone(given.rows // BATCH_ROWS)
    try:
        beside_the_peer(given.rounds, given.seconds)
    except FileNotFoundError as missing:
        print(f"the peer is left out: {missing}")


def measure_alone(count: int) -> None:
    """Ingest `count` batches, and store them bare; print and record."""
    bodies = [json.dumps(items(number)).encode() for number in range(count)]
    rows = len(bodies) * BATCH_ROWS
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        asyncio.run(add_acme(data_dir))
        with running_server(data_dir) as client:
            ingest(client, bodies[:CLIENTS])
            taken = rows_per_s(lambda: ingest(client, bodies), rows)
        batches = [encoded(body) for body in bodies]
        bare = rows_per_s(lambda: store_bare(data_dir / "bare.db", batches), rows)
    print(f"ingest over HTTP     {taken:10,.0f} rows/s   (estimated 60,000)")
    print(f"  bare sqlite3       {bare:10,.0f} rows/s   (estimated 400,000)")
    print(f"  ratio              {bare / taken:10.1f}          (estimated 7)")
    record(
        "ingest",
        {
            "over HTTP, rows/s": taken,
            "bare sqlite3, rows/s": bare,
            "bare to HTTP, ratio": bare / taken,
        },
        estimated={
            "over HTTP, rows/s": 60_000,
            "bare sqlite3, rows/s": 400_000,
            "bare to HTTP, ratio": 7,
        },
    )


if __name__ == "__main__":
    main()
