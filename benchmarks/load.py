"""Claim: sixteen concurrent clients are served without errors, for any length of time.

They mix pages (80 %), summaries, ingest and, one at a time, exports, over HTTP against one server
on a generated set, with clients on the same machine. With `--compact` the largest tenant's days are
in pieces first, which the service merges during the run. With `--minutes` it is a soak test: at
half of the rate that a short run at full speed reached, with memory and file descriptors over time.
"""

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from analytics.cache.row_groups import Decoded
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder
from analytics.storage.segment_writer import write_segment
from benchmarks.client import Client
from benchmarks.lake import (
    DAYS,
    FIRST_DAY,
    RARE_PACKAGE,
    ROWS_MAX,
    SETS,
    VERSION,
    all_segments,
    tenant_id,
)
from benchmarks.results import LOAD, record
from benchmarks.served import SLUG, link_segment, served
from benchmarks.server import ADMIN, ServerClient
from benchmarks.watching import watched

CLIENTS = 16
SECONDS = 60
PAGE_ROWS = 50
AUDIT = f"/api/v1/admin/orgs/{SLUG}/audit"
EXPORTED = {
    "since": str(FIRST_DAY + timedelta(days=DAYS - 7)),
    "until": str(FIRST_DAY + timedelta(days=DAYS - 6)),  # that day included
}
"""Two whole days in the past, so that the number of rows in the file is constant."""

PIECES = 24
"""Files of a day before it is merged: enough for the merge to be due immediately."""

Asking = Callable[[Client, random.Random], None]


class Failed(Exception):
    """A response that does not match the request."""


@dataclass
class Tally:
    """The clients' results: latencies in ms by kind of request, and errors."""

    latencies_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    rows_sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, kind: str, ms: float) -> None:
        """Count a success."""
        with self._lock:
            self.latencies_ms[kind].append(ms)

    def failed(self, why: str) -> None:
        """Count an error."""
        with self._lock:
            self.errors[why] += 1

    def sent(self, rows: int) -> None:
        """Count rows that the service acknowledged."""
        with self._lock:
            self.rows_sent += rows

    def lines(self, seconds: float) -> dict[str, dict[str, float]]:
        """For each kind: count, rate per second, median and 99th percentile in ms."""
        every = [ms for some in self.latencies_ms.values() for ms in some]
        kinds = {**self.latencies_ms, "all": every}
        return {
            kind: {
                "requests": len(some),
                "per_s": round(len(some) / seconds, 1),
                "p50_ms": round(statistics.median(some), 1),
                "p99_ms": round(statistics.quantiles(some, n=100, method="inclusive")[98], 1),
                "max_ms": round(max(some), 1),
            }
            for kind, some in sorted(kinds.items())
            if len(some) > 1
        }


class Mix:
    """The requests of one run's clients. Only one export runs at a time."""

    def __init__(self, tally: Tally, export_rows: int) -> None:
        self.tally = tally
        self._export_rows = export_rows
        self._exporting = threading.Lock()
        self._kinds: dict[str, tuple[int, Asking]] = {
            "page: newest": (40, self._page({})),
            "page: common value": (16, self._page({"decision": "BLOCKED"})),
            "page: two values": (8, self._page({"decision": "BLOCKED", "actor_source": "oidc_*"})),
            "page: rare value": (4, self._page({"package": RARE_PACKAGE})),
            "page: next": (12, self._next_page),
            "summary": (8, self._summary),
            "ingest": (11, self._ingest),
            "export": (1, self._export),
        }

    def ask(self, client: Client, chance: random.Random) -> bool:
        """Send a random request and record its time; False if the connection may be broken."""
        weights = [weight for weight, _ in self._kinds.values()]
        (kind,) = chance.choices(list(self._kinds), weights)
        if kind == "export" and self._exporting.locked():
            kind = "page: newest"
        began_at = time.perf_counter()
        try:
            self._kinds[kind][1](client, chance)
        except (Failed, OSError) as error:
            self.tally.failed(f"{kind}: {error}")
            return False
        self.tally.answered(kind, (time.perf_counter() - began_at) * 1000)
        return True

    def _page(self, filters: dict[str, str]) -> Asking:
        target = f"{AUDIT}?{urlencode(filters | {'limit': PAGE_ROWS})}"

        def ask(client: Client, chance: random.Random) -> None:
            self._get_page(client, target)

        return ask

    def _get_page(self, client: Client, target: str) -> dict[str, Any]:
        page = _answer(client, "GET", target)
        if len(page["entries"]) != PAGE_ROWS and page["next_cursor"] is not None:
            raise Failed(f"{len(page['entries'])} rows")
        return page

    def _next_page(self, client: Client, chance: random.Random) -> None:
        """A page that continues another, from a random position in the set's days."""
        until = FIRST_DAY + timedelta(days=chance.randrange(2, DAYS))
        first = f"{AUDIT}?{urlencode({'until': until, 'limit': PAGE_ROWS})}"
        cursor = (self._get_page(client, first))["next_cursor"]
        self._get_page(client, f"{first}&{urlencode({'cursor': cursor})}")

    def _summary(self, client: Client, chance: random.Random) -> None:
        summary = _answer(client, "GET", f"{AUDIT}/summary?bucket=day")
        if summary["total"] < self.tally.rows_sent:
            raise Failed(f"a total of {summary['total']}")

    def _ingest(self, client: Client, chance: random.Random) -> None:
        rows = [_item(chance) for _ in range(chance.choice([1, 10, 100]))]
        answer = _answer(client, "POST", f"{AUDIT}/events", json.dumps(rows).encode())
        if answer != {"accepted": len(rows), "rejected": []}:
            raise Failed(str(answer)[:200])
        self.tally.sent(len(rows))

    def _export(self, client: Client, chance: random.Random) -> None:
        with self._exporting:
            answer = client.get(f"{AUDIT}/export?{urlencode(EXPORTED | {'format': 'csv'})}")
        lines = answer.body.count(b"\n")
        if answer.status != 200 or lines != self._export_rows + 1:
            raise Failed(f"status {answer.status}, {lines} lines")


def _answer(client: Client, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
    answer = client.ask(method, target, body, "application/json" if body else "")
    if answer.status != 200:
        raise Failed(f"status {answer.status}: {answer.body[:200]!r}")
    decoded: dict[str, Any] = json.loads(answer.body)
    return decoded


def _item(chance: random.Random) -> dict[str, object]:
    package = f"left-{chance.randrange(5_000)}"
    if chance.random() < 0.9:
        return {"event": "install_allowed", "packageName": package, "version": "1.0.0"}
    envelope = {"rule_id": f"MAL-2026-{chance.randrange(900):04}", "source": "osv"}
    return {"event": "blocklist_hit", "packageName": package, "version": "1.0.0"} | {
        "envelope": envelope
    }


def run(server: ServerClient, mix: Mix, seconds: float, per_s: float | None, seed: int) -> float:
    """Keep CLIENTS busy for `seconds`, at `per_s` requests per second or at full speed.

    Returns the time until the last of them had its response.
    """
    began_at = time.perf_counter()
    turns = Turns(began_at, seconds, per_s)

    def one(number: int) -> None:
        chance = random.Random(f"{seed}-{number}")  # noqa: S311 - for repeatable runs, not for security
        client = Client(server.base_url.port or 80, ADMIN)
        for due_at in iter(turns.take, None):
            time.sleep(max(0.0, due_at - time.perf_counter()))
            if not mix.ask(client, chance):
                client = Client(server.base_url.port or 80, ADMIN)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one, range(CLIENTS)))
    return time.perf_counter() - began_at


class Turns:
    """When each request is due, shared by all clients: the next free one takes the next."""

    def __init__(self, began_at: float, seconds: float, per_s: float | None) -> None:
        self._began_at, self._ends_at, self._per_s = began_at, began_at + seconds, per_s
        self._number = 0
        self._lock = threading.Lock()

    def take(self) -> float | None:
        """The next due time on the performance counter's clock, or None if the run is over."""
        now = time.perf_counter()
        with self._lock:
            due_at = now if self._per_s is None else self._began_at + self._number / self._per_s
            self._number += 1
        return due_at if max(now, due_at) < self._ends_at else None


@contextmanager
def in_pieces(folder: Path, segments: Sequence[Segment]) -> Iterator[tuple[Path, list[Segment]]]:
    """The set with each day of the largest tenant in PIECES files, in a folder of its own."""
    largest = tenant_id(0)
    decoded = Decoded(LocalFolder(folder / "audit"), 1)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        root = Path(name) / "audit"
        root.mkdir()
        cut: list[Segment] = []
        for segment in segments:
            if segment.tenant_id == largest:
                cut += _pieces(root, decoded, segment)
            else:
                link_segment(segment, folder / "audit", root)
                cut.append(segment)
        yield Path(name), cut


def _pieces(root: Path, decoded: Decoded, segment: Segment) -> Iterator[Segment]:
    groups = len(decoded.row_groups(segment))
    number = 0
    for index in range(groups):
        rows = decoded.rows(segment, index)
        length = max(1, -(-rows.num_rows * groups // PIECES))
        for start in range(0, rows.num_rows, length):
            number += 1
            name = f"{segment.segment_id}p{number}"
            part = rows.slice(start, length)
            yield write_segment(root, segment.tenant_id, segment.day, name, part)


def measure(client: ServerClient, given: argparse.Namespace) -> dict[str, Any]:
    """Print and return one run: rates and latencies, memory and descriptors over time."""
    wanted = client.get(f"{AUDIT}/summary", params=EXPORTED).json()["total"]
    before = client.get(f"{AUDIT}/summary").json()["total"]
    warm = Mix(Tally(), wanted)
    warm_s = run(client, warm, given.warm_up, None, seed=1)
    rate = sum(map(len, warm.tally.latencies_ms.values())) / warm_s
    per_s = rate / 2 if given.minutes else None
    mix = Mix(Tally(), wanted)

    with watched(client.process_id, given.every) as watch:
        seconds = run(client, mix, given.minutes * 60 or given.seconds, per_s, seed=2)
    held = client.get(f"{AUDIT}/summary").json()["total"] - before
    sent = warm.tally.rows_sent + mix.tally.rows_sent
    if held < sent:
        mix.tally.errors[f"{sent - held} rows lost"] += 1
    return {
        "rows": given.rows,
        "clients": CLIENTS,
        "seconds": round(seconds, 1),
        "asked_per_s": None if per_s is None else round(per_s, 1),
        "kinds": mix.tally.lines(seconds),
        "errors": dict(warm.tally.errors + mix.tally.errors),
        "rows_sent": sent,
        "memory_peak_mb": round(watch.peak_mb, 1),
        "samples": [asdict(sample) for sample in watch.samples],
    }


def show(name: str, measured: dict[str, Any]) -> None:
    """Print a run as a table."""
    first, last = measured["samples"][0], measured["samples"][-1]
    print(f"{name}: {measured['clients']} clients for {measured['seconds']} s")
    for kind, line in measured["kinds"].items():
        print(
            f"  {kind:<20} {line['requests']:8,} requests  {line['per_s']:8,.1f}/s"
            f"   p50 {line['p50_ms']:8.1f} ms   p99 {line['p99_ms']:8.1f} ms"
            f"   max {line['max_ms']:8.1f} ms"
        )
    print(
        f"  memory {first['memory_mb']:.0f} → {last['memory_mb']:.0f} MB"
        f" (peak {measured['memory_peak_mb']:.0f}),"
        f" descriptors {first['descriptors']} → {last['descriptors']},"
        f" {measured['rows_sent']:,} rows sent, all there; errors: {measured['errors'] or 'none'}"
    )


def main() -> None:
    """Measure; print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help=f"up to {ROWS_MAX:,}")
    parser.add_argument("--folder", type=Path, default=SETS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long")
    parser.add_argument("--minutes", type=float, default=0, help="soak: so long, at half load")
    parser.add_argument("--warm-up", type=float, default=15, help="seconds that do not count")
    parser.add_argument("--every", type=float, default=1, help="seconds between two samples")
    parser.add_argument("--compact", action="store_true", help="with a compaction running")
    given = parser.parse_args()
    folder = given.folder / f"rows-{given.rows}-v{VERSION}"
    segments = all_segments(folder, given.rows)
    name = "soak" if given.minutes else "load, compacting" if given.compact else "load"
    placed = in_pieces(folder, segments) if given.compact else nullcontext((folder, segments))
    with placed as (at, own), served(own, at) as client:
        measured = measure(client, given)
    show(name, measured)
    record(name, measured, LOAD)
    if measured["errors"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
