"""Claim: sixteen concurrent clients are served quickly and without errors, also during merges.

They mix pages (80 %), summaries, ingest and, one at a time, exports, over HTTP against one server
on a generated set, with clients on the same machine: with the largest tenant's days merged, while
they are merged, and with their small files waiting. With `--beside` also the service of another
checkout, in alternating rounds. With `--minutes` it is a soak test: at half of the rate that a
short run at full speed reached, with memory and file descriptors over time.
"""

import argparse
import fcntl
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.checkouts import BEFORE, OURS, Checkout, Running, checkouts, medians, show
from benchmarks.client import Client
from benchmarks.lake import ROWS_MAX
from benchmarks.mix import AUDIT, CLIENTS, EXPORTED, Mix, Tally, run
from benchmarks.results import LOAD, record
from benchmarks.server import ADMIN
from benchmarks.watching import processor_s, watched

PIECES: Final = 24
"""Files of a day before it is merged: enough for the merge to be due immediately."""

NEWEST: Final = "page: newest"
RARE: Final = "page: rare value"


@dataclass(frozen=True)
class Case:
    """What happens beside the requests; `pieces` are the files of each of 90 days at first.

    Merging is prevented until `merges_from`: "start" of the server, "measured" time, or "never".
    """

    name: str
    pieces: int = PIECES
    merges_from: str = "never"


CASES: Final = (
    Case("merged days", pieces=0),
    Case("days being merged", merges_from="start"),
    Case("2,160 files that wait"),
    Case("2,160 files being merged", merges_from="measured"),
)


class Failed(Exception):
    """A run with wrong responses or lost rows."""


@contextmanager
def no_merges(data_dir: Path) -> Iterator[None]:
    """Hold the lock that every job that changes segments needs."""
    with (data_dir / "segments.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def days_in_pieces(data_dir: Path) -> int:
    """How many days have not been merged."""
    with closing(sqlite3.connect(f"file:{data_dir / 'countersign.db'}?mode=ro", uri=True)) as base:
        (count,) = base.execute(
            "SELECT count(*) FROM (SELECT 1 FROM segments WHERE retired_at IS NULL"
            " GROUP BY tenant_id, day HAVING count(*) > ?)",
            (PIECES // 2,),
        ).fetchone()
    return int(count)


def measure(
    running: Running, case: Case, given: argparse.Namespace, let_merge: Callable[[], None]
) -> dict[str, Any]:
    """One run: rates and latencies, memory and descriptors over time. Raises Failed."""
    client = running.client
    wanted = client.get(f"{AUDIT}/summary", params=EXPORTED).json()["total"]
    before = client.get(f"{AUDIT}/summary").json()["total"]
    warm, mix, alone = (Mix(Tally(), wanted) for _ in range(3))
    warm_s = run(client, warm, given.warm_up, None, seed=1)
    rate = sum(map(len, warm.tally.latencies_ms.values())) / warm_s
    per_s = rate / 2 if given.minutes else None
    waiting = days_in_pieces(running.data_dir)
    if case.merges_from == "measured":
        let_merge()
    with watched(client.process_id, given.every) as watch:
        seconds = run(client, mix, given.minutes * 60 or given.seconds, per_s, seed=2)
    still = days_in_pieces(running.data_dir)
    is_quiet = case.merges_from == "never" and not given.minutes
    processor = _by_kind(running, alone, given.seconds / 20) if is_quiet else {}
    held = client.get(f"{AUDIT}/summary").json()["total"] - before
    sent = sum(each.tally.rows_sent for each in (warm, mix, alone))
    errors = warm.tally.errors + mix.tally.errors + alone.tally.errors
    if held < sent:
        errors[f"{sent - held} rows lost"] += 1
    if errors:
        raise Failed(f"{case.name}: {dict(errors)}")
    return {
        "rows": given.rows,
        "clients": CLIENTS,
        "seconds": round(seconds, 1),
        "asked_per_s": None if per_s is None else round(per_s, 1),
        "kinds": mix.tally.lines(seconds),
        "errors": {},
        "rows_sent": sent,
        "memory_peak_mb": watch.peak_mb,
        "samples": [asdict(sample) for sample in watch.samples],
        "processor_s": watch.samples[-1].processor_s - watch.samples[0].processor_s,
        "processor_ms": processor,
        "days_merged": waiting - still,
        "days_waiting": still,
    }


def _by_kind(running: Running, mix: Mix, seconds: float) -> dict[str, float]:
    """The server's processor time for a request of each kind, in ms; one client asks."""
    chance = random.Random(3)  # noqa: S311 - for repeatable runs, not for security
    found: dict[str, float] = {}
    with Client(running.client.base_url.port or 80, ADMIN) as client:
        for kind in mix.kinds:
            mix.ask_for(kind, client, chance)
            count, ends_at = 0, time.monotonic() + seconds
            began_s = processor_s(running.client.process_id)
            while count == 0 or time.monotonic() < ends_at:
                mix.ask_for(kind, client, chance)
                count += 1
            found[kind] = (processor_s(running.client.process_id) - began_s) * 1000 / count
    return found


def figures(measured: dict[str, Any]) -> dict[str, float]:
    """A run's lines in the table."""
    every = measured["kinds"]["all"]
    lines = {
        "requests, /s": every["per_s"],
        "processor time of a request, ms": measured["processor_s"] * 1000 / every["requests"],
        "memory at its peak, MB": measured["memory_peak_mb"],
        "days merged meanwhile, days": measured["days_merged"],
        "days that wait at the end, days": measured["days_waiting"],
    }
    for kind, line in measured["kinds"].items():
        lines |= {f"{kind} p50, ms": line["p50_ms"], f"{kind} p99, ms": line["p99_ms"]}
    for kind, ms in measured["processor_ms"].items():
        lines[f"{kind} alone, processor, ms"] = ms
    return lines


def goals(tables: dict[str, dict[str, dict[str, float]]], case: Case) -> dict[str, float]:
    """What ours should reach, in parts of the figures of `tables`, by case."""
    rate, p50, p99 = "requests, /s", f"{NEWEST} p50, ms", f"{NEWEST} p99, ms"
    merged, own = tables[CASES[0].name], tables[case.name]
    if case.merges_from == "never" and case.pieces:
        return {rate: 0.8 * merged[rate][OURS], f"{RARE} p50, ms": 300.0}
    if case.merges_from == "start":
        return {p50: 1.3 * merged[p50][OURS], p99: 2 * merged[p99][OURS]}
    if BEFORE not in own[rate]:
        return {}
    if case.merges_from == "measured":
        return {rate: 10 * own[rate][BEFORE]}
    return {rate: 2.1 * own[rate][BEFORE], p50: 0.4 * own[p50][BEFORE]}


def one_run(checkout: Checkout, case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """A run of `case` on a new server. Raises Failed."""
    # A merge that finds the lock taken is tried again after the sweep interval.
    settings = {"COUNTERSIGN_SWEEP_INTERVAL_S": "1"} if case.merges_from == "measured" else {}
    with checkout.filled(given.rows, case.pieces) as data_dir, ExitStack() as lock:
        if case.pieces and case.merges_from != "start":
            lock.enter_context(no_merges(data_dir))
        with checkout.serving(data_dir, settings) as running:
            return measure(running, case, given, lock.close)


def main() -> None:
    """Measure; print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help=f"up to {ROWS_MAX:,}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=0, help="soak: so long, at half load")
    parser.add_argument("--warm-up", type=float, default=8, help="seconds that do not count")
    parser.add_argument("--every", type=float, default=1, help="seconds between two samples")
    parser.add_argument("--beside", type=Path, help="another checkout with its own .venv")
    given = parser.parse_args()
    sides = checkouts(given.beside)
    if given.minutes:
        measured = one_run(sides[-1], CASES[0], given)
        show({name: {OURS: value} for name, value in figures(measured).items()}, {})
        record("soak", measured, LOAD)
        return
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for case in CASES:
        rounds: dict[str, list[dict[str, float]]] = {side.column: [] for side in sides}
        for _ in range(given.rounds):
            for side in sides:
                rounds[side.column].append(figures(one_run(side, case, given)))
        tables[case.name] = medians(rounds)
        expected = goals(tables, case)
        print(f"{case.name}: {CLIENTS} clients, {given.rows:,} rows")
        show(tables[case.name], expected)
        record(f"load: {case.name}", tables[case.name], estimated=expected)


if __name__ == "__main__":
    main()
