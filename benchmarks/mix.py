"""The requests of sixteen concurrent clients: pages, summaries, ingest and exports, all checked."""

import json
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from benchmarks.client import Client
from benchmarks.lake import DAYS, FIRST_DAY, RARE_PACKAGE
from benchmarks.served import SLUG
from benchmarks.server import ADMIN, ServerClient

CLIENTS = 16
PAGE_ROWS = 50
AUDIT = f"/api/v1/admin/orgs/{SLUG}/audit"
EXPORTED = {
    "since": str(FIRST_DAY + timedelta(days=DAYS - 7)),
    "until": str(FIRST_DAY + timedelta(days=DAYS - 6)),  # that day included
}
"""Two whole days in the past, so that the number of rows in the file is constant."""

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

    @property
    def kinds(self) -> list[str]:
        """The names of all kinds of request."""
        return list(self._kinds)

    def ask(self, client: Client, chance: random.Random) -> bool:
        """Send a random request and record its time; False if the connection may be broken."""
        weights = [weight for weight, _ in self._kinds.values()]
        (kind,) = chance.choices(list(self._kinds), weights)
        if kind == "export" and self._exporting.locked():
            kind = "page: newest"
        return self.ask_for(kind, client, chance)

    def ask_for(self, kind: str, client: Client, chance: random.Random) -> bool:
        """Send a request of this kind and record its time; as `ask`."""
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
