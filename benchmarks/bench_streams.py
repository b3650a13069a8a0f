"""Claim: rows arrive within 5 s of their commit (p95), a backlog at 20,000 rows/s.

And ingest keeps 95 % of its rate. A receiver in a process of its own counts lines and answers 200.
The backlog is that of one organisation of a generated set, whose rows are sealed. Then 100 rows a
second are sent for a while, and last ingest is measured with three streams and with none, in turn.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from benchmarks.bench_ingest import add_acme
from benchmarks.bench_sustained_ingest import run
from benchmarks.lake import ROWS_MAX, SETS, VERSION, all_segments
from benchmarks.results import record
from benchmarks.served import found
from benchmarks.server import ServerClient, running_server
from service.app.bootstrap import prepare
from service.app.composition import build_services
from service.core.clock import utc_now
from service.core.secrets import seal
from service.core.settings import Settings
from service.store.tables import Stream

LOCAL = "127.0.0.0/8"
NETWORKS = {"COUNTERSIGN_STREAM_NETWORKS": LOCAL}
RATE = 10
PATH = "/api/v1/admin/orgs/acme"
EVENTS = [{"event": "install_allowed", "packageName": f"package-{n}"} for n in range(RATE)]
"""Sent ten times a second."""
ESTIMATED = {
    "backlog, rows/s": 30_000.0,
    "from commit to 2xx p95, s": 3.0,
    "ingest with three streams, ratio": 0.97,
}


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _serve(pipe: Connection, *, ages: bool) -> None:
    rows = 0
    latencies_s: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal rows
        while head := await _head(reader):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            rows += body.count(b"\n")
            now = datetime.now(UTC)
            for line in body.splitlines() if ages else ():
                at = json.loads(line).get("received_at")
                if at is not None:
                    latencies_s.append((now - datetime.fromisoformat(at)).total_seconds())

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24)
    pipe.send(server.sockets[0].getsockname()[1])
    while await asyncio.to_thread(pipe.recv):
        pipe.send((rows, latencies_s))


def serve(pipe: Connection, ages: bool) -> None:
    """Count what is received, until told to end."""
    asyncio.run(_serve(pipe, ages=ages))


class Receiver:
    """What a test receiver has, by its pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.url = f"http://127.0.0.1:{pipe.recv()}/rows"

    def counted(self) -> tuple[int, list[float]]:
        """How many rows it has, and how old each was when it came."""
        self._pipe.send(True)
        rows, latencies_s = self._pipe.recv()
        return rows, latencies_s


@contextmanager
def receiving(*, ages: bool = False) -> Iterator[Receiver]:
    """A receiver in a process of its own, which may look at the ages of rows."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=serve, args=(theirs, ages), daemon=True)
    process.start()
    try:
        yield Receiver(ours)
    finally:
        process.terminate()
        process.join()


async def backlog(folder: Path, data_dir: Path, rows: int, receiver: Receiver) -> dict[str, float]:
    """The rate at which one organisation's rows are delivered, and the memory that it takes."""
    segments = all_segments(folder, rows)
    await found(segments, folder / "audit", data_dir)
    settings = msgspec.structs.replace(
        await prepare(Settings(data_dir=data_dir)), stream_networks=(LOCAL,)
    )
    services = build_services(settings, utc_now)
    owned = sum(each.rows for each in segments if each.tenant_id == segments[0].tenant_id)
    async with services.store.write() as work:
        work.session.add(
            Stream(
                id="stream_0",
                tenant_id=segments[0].tenant_id,
                name="backlog",
                kind="webhook",
                url=receiver.url,
                query="",
                state="active",
                secret=seal(settings.secret_key, "stream_0", "whsec_AAAA"),
                **dict.fromkeys(("revision", "cursor", "reconciled_seq", "parked"), 0),
                parked_since=[],
                reconciled_at=work.now,
                created_by="benchmark",
                created_at=work.now,
            )
        )
    began_at, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while receiver.counted()[0] < owned:
        await services.deliveries.deliver_due()
        await asyncio.sleep(0.05)
    took_s = time.perf_counter() - began_at
    await services.close()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"rows": owned, "backlog, rows/s": owned / took_s, "more memory, MB": used / 1024}


def create(client: ServerClient, url: str, number: int = 0) -> None:
    """A stream of new rows."""
    body = {"name": f"stream {number}", "kind": "webhook", "url": url}
    client.post(f"{PATH}/streams", json=body).raise_for_status()


def latencies(data_dir: Path, receiver: Receiver, seconds: float) -> dict[str, float]:
    """How long rows take, sent at 100 a second."""
    asyncio.run(add_acme(data_dir))
    with running_server(data_dir, NETWORKS) as client:
        create(client, receiver.url)
        ends_at, sent = time.monotonic() + seconds, 0
        while time.monotonic() < ends_at:
            client.post(f"{PATH}/audit/events", json=EVENTS).raise_for_status()
            sent += len(EVENTS)
            time.sleep(1 / RATE)
        while len(receiver.counted()[1]) < sent:
            time.sleep(0.1)
    took_s = receiver.counted()[1]
    return {
        "from commit to 2xx p50, s": statistics.median(took_s),
        "from commit to 2xx p95, s": statistics.quantiles(took_s, n=20)[-1],
    }


def ingest_ratio(seconds: float, rounds: int, url: str) -> float:
    """Rows per second with three streams, by those without any, in turn."""
    rates: dict[int, list[float]] = {3: [], 0: []}
    for _ in range(rounds):
        for streams, found_rates in rates.items():
            with tempfile.TemporaryDirectory() as data_dir:
                asyncio.run(add_acme(Path(data_dir)))
                with running_server(Path(data_dir), NETWORKS) as client:
                    for number in range(streams):
                        create(client, url, number)
                    found_rates.append(run(client, seconds)["taken in, rows/s"])
    with_streams, without = (statistics.median(each) for each in rates.values())
    return with_streams / without


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX}")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = SETS / f"rows-{given.rows}-v{VERSION}"
    all_segments(folder, given.rows)
    with tempfile.TemporaryDirectory(dir=folder) as data_dir, receiving() as receiver:
        figures = asyncio.run(backlog(folder, Path(data_dir), given.rows, receiver))
    with tempfile.TemporaryDirectory() as data_dir, receiving(ages=True) as receiver:
        figures |= latencies(Path(data_dir), receiver, given.seconds)
    with receiving() as receiver:
        ratio = ingest_ratio(given.seconds, given.rounds, receiver.url)
    figures["ingest with three streams, ratio"] = ratio
    for name, figure in figures.items():
        guess = f"   (estimated {ESTIMATED[name]:g})" if name in ESTIMATED else ""
        print(f"{name:<36}{figure:14,.3f}{guess}")
    record("streams", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
