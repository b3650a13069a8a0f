"""Claim: proofs cost 0.2 bytes a row, at most 10 ms each, and ingest at most 5 % of its rate.

All rows of a generated set are taken into their trees, as after an upgrade; then rows at random are
proved, by what answers the API. The limit is hashing alone: SHA-256 of entries that lie ready.
Ingest is measured with a checkpoint each second beside one with none, in turn.
"""

import argparse
import asyncio
import hashlib
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import func, select

from analytics.evidence.canonical import entries
from analytics.model.schema import audit_id
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_reader import open_segment
from benchmarks.bench_ingest import add_acme
from benchmarks.bench_sustained_ingest import run
from benchmarks.lake import ROWS_MAX, SETS, VERSION, all_segments
from benchmarks.results import record
from benchmarks.served import SLUG, found
from benchmarks.server import running_server
from service.app.bootstrap import prepare
from service.app.collector import begin_collecting
from service.app.composition import Services, build_services
from service.audit.evidence.evidence_api import prove
from service.audit.services import AuditServices
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.organisations import get_org
from service.store.tables import EvidenceCheckpoint, EvidenceTile

PROOFS = 200
SEED = 7
ESTIMATED = {
    "taken in, rows/s": 150_000.0,
    "stored, bytes a row": 0.14,
    "a proof p50, ms": 8.0,
    "ingest with checkpoints, ratio": 0.97,
}


async def take_in(services: Services) -> float:
    """All rows into their trees; rows per second."""
    began_at = time.perf_counter()
    rows = await services.checkpointer.take_in()
    return rows / (time.perf_counter() - began_at)


async def stored_bytes(services: Services) -> int:
    """What tiles and checkpoints take, keys and columns of numbers included."""
    tile = (EvidenceTile.hashes, EvidenceTile.first_seqs, EvidenceTile.pruned)
    signed = (EvidenceCheckpoint.root, EvidenceCheckpoint.signatures)
    total = 0
    async with services.store.read() as session:
        for columns, fixed in ((tile, 32), (signed, 64)):
            sizes = (func.coalesce(func.length(column), 0) for column in columns)
            query = select(func.sum(sum(sizes)) + fixed * func.count())
            total += await session.scalar(query) or 0
    return total


async def proofs_ms(services: Services, seqs: Sequence[int]) -> list[float]:
    """How long the proof of each of these rows takes."""
    (audit,) = (group for group in services.groups() if type(group) is AuditServices)
    async with services.store.read() as session:
        org = await get_org(session, SLUG)
    took_ms = []
    for seq in seqs:
        began_at = time.perf_counter()
        await prove(audit, org, audit_id(seq))
        took_ms.append((time.perf_counter() - began_at) * 1000)
    return took_ms


def hashed_alone(segments: Sequence[Segment], root: Path) -> float:
    """SHA-256 of ready entries; rows per second."""
    with open_segment(root, segments[0]) as file:
        ready = list(entries(file.rows(0), segments[0].tenant_id, bytes(32)))
    began_at = time.perf_counter()
    for entry in ready:
        hashlib.sha256(entry).digest()
    return len(ready) / (time.perf_counter() - began_at)


async def measure(segments: Sequence[Segment], folder: Path, data_dir: Path) -> dict[str, float]:
    """The figures of trees and proofs."""
    await found(segments, folder / "audit", data_dir)
    services = build_services(await prepare(Settings(data_dir=data_dir)), utc_now)
    try:
        rate = await take_in(services)
        rows = sum(segment.rows for segment in segments)
        own = [segment for segment in segments if segment.tenant_id == segments[0].tenant_id]
        rng = random.Random(SEED)  # noqa: S311 - which rows are proved is no secret
        days = rng.choices(own, weights=[segment.rows for segment in own], k=PROOFS)
        seqs = [rng.randrange(segment.min_seq, segment.max_seq + 1) for segment in days]
        begin_collecting()  # as a process that serves does
        took_ms = await proofs_ms(services, seqs)
        again_ms = await proofs_ms(services, seqs)
        return {
            "rows": rows,
            "taken in, rows/s": rate,
            "hashing alone, rows/s": hashed_alone(segments, folder / "audit"),
            "memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "stored, bytes a row": await stored_bytes(services) / rows,
            "a proof p50, ms": statistics.median(took_ms),
            "a proof p95, ms": statistics.quantiles(took_ms, n=20)[-1],
            "a proof again p50, ms": statistics.median(again_ms),
        }
    finally:
        await services.close()


def ingest_ratio(seconds: float, rounds: int) -> float:
    """Rows per second with a checkpoint each second, by those without any, in turn."""
    rates: dict[str, list[float]] = {"1": [], "86400": []}
    for _ in range(rounds):
        for interval_s, found_rates in rates.items():
            environment = {"COUNTERSIGN_CHECKPOINT_INTERVAL_S": interval_s}
            with tempfile.TemporaryDirectory() as data_dir:
                asyncio.run(add_acme(Path(data_dir)))
                with running_server(Path(data_dir), environment) as client:
                    found_rates.append(run(client, seconds)["taken in, rows/s"])
    with_signing, without = (statistics.median(each) for each in rates.values())
    return with_signing / without


def lines(figures: dict[str, float]) -> Iterator[str]:
    """The figures for people, with the estimates made before."""
    for name, figure in figures.items():
        guess = f"   (estimated {ESTIMATED[name]:g})" if name in ESTIMATED else ""
        yield f"{name:<32}{figure:14,.3f}{guess}"


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX}")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of ingest")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = SETS / f"rows-{given.rows}-v{VERSION}"
    segments = all_segments(folder, given.rows)
    with tempfile.TemporaryDirectory(dir=folder) as data_dir:
        figures = asyncio.run(measure(segments, folder, Path(data_dir)))
    figures["ingest with checkpoints, ratio"] = ingest_ratio(given.seconds, given.rounds)
    print("\n".join(lines(figures)))
    record("evidence", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
