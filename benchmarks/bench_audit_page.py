"""Claim: a large tenant's audit page sends its first byte within 100 ms, and is small.

The peer is the lower bound for any page with the same content: requests to the JSON API, in the
same run, for the same rows and their summary. Both use HTTP and the same warm server.
"""

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2

from benchmarks.lake import DAYS, FIRST_DAY, RARE_PACKAGE, largest_tenant, rows_asked_for
from benchmarks.results import record
from benchmarks.served import SLUG, served

ROUNDS = 15
ROWS = "50"
PAGE = f"/admin/ui/orgs/{SLUG}/audit"
API = f"/api/v1/admin/orgs/{SLUG}/audit"
STATIC = r"/static/[\w.-]+"
LAST_WEEK = {"since": str(FIRST_DAY + timedelta(days=DAYS - 7))}


@dataclass(frozen=True)
class Line:
    """One view of the log, and the estimates made before the first run."""

    name: str
    query: dict[str, str]
    first_byte_ms: float
    ratio: float


LINES = [
    Line("all rows", {}, 30, 1.3),
    Line("a week's blocked", LAST_WEEK | {"decision": "BLOCKED"}, 30, 1.5),
    Line("a rare package", {"package": RARE_PACKAGE}, 60, 1.3),
]


@dataclass(frozen=True)
class Loaded:
    """Times of a page's first byte, first part and last byte, and its size."""

    first_byte_ms: float
    first_part_ms: float
    whole_ms: float
    size: int


def load(client: httpx2.Client, query: dict[str, str]) -> Loaded:
    """One whole page, as a browser receives it."""
    began_at = time.perf_counter()
    times: list[float] = []
    size = 0
    with client.stream("GET", PAGE, params=query) as response:
        assert response.status_code == 200, response.read()
        times.append(time.perf_counter() - began_at)
        for piece in response.iter_raw():
            times.append(time.perf_counter() - began_at)
            size += len(piece)
    return Loaded(times[0] * 1000, times[1] * 1000, times[-1] * 1000, size)


def ask(client: httpx2.Client, query: dict[str, str]) -> None:
    """The rows and the summary of a page, from the API."""
    for path, more in ((API, {"limit": ROWS}), (f"{API}/summary", {"bucket": "day"})):
        assert client.get(path, params=query | more).status_code == 200


def medians(work: Callable[[], Any]) -> list[Any]:
    """The results of ROUNDS of `work`, after some that warm up the service."""
    for _ in range(3):
        work()
        time.sleep(0.2)
    return [work() for _ in range(ROUNDS)]


def measure(client: httpx2.Client, line: Line) -> dict[str, float]:
    """Print the page's figures beside its peer's; milliseconds."""
    pages: list[Loaded] = medians(lambda: load(client, line.query))

    def of(name: str) -> float:
        return float(statistics.median(getattr(page, name) for page in pages))

    def timed() -> float:
        began_at = time.perf_counter()
        ask(client, line.query)
        return (time.perf_counter() - began_at) * 1000

    peer = statistics.median(medians(timed))
    print(
        f"{line.name:<18} first byte {of('first_byte_ms'):6.1f} ms"
        f" (estimated {line.first_byte_ms:.0f})"
        f"   first part {of('first_part_ms'):6.1f} ms   whole {of('whole_ms'):7.1f} ms,"
        f" {pages[0].size / 1000:.0f} kB"
        f"   API: page and summary {peer:7.1f} ms"
        f"   ratio {of('whole_ms') / peer:4.2f} (estimated {line.ratio:.2f})"
    )
    return {
        f"{line.name}: first byte, ms": of("first_byte_ms"),
        f"{line.name}: first part, ms": of("first_part_ms"),
        f"{line.name}: whole page, ms": of("whole_ms"),
        f"{line.name}: API for page and summary, ms": peer,
        f"{line.name}: whole page to API, ratio": of("whole_ms") / peer,
    }


def weigh(client: httpx2.Client) -> None:
    """Print the uncompressed size of the page without rows, including its scripts and styles."""
    page = client.get(PAGE, params={"package": "nowhere"})
    files = {path: len(client.get(path).content) for path in re.findall(STATIC, page.text)}
    print(
        f"without data {(len(page.content) + sum(files.values())) / 1000:.1f} kB"
        f" (at most 100): HTML {len(page.content) / 1000:.1f}, "
        + ", ".join(f"{path} {size / 1000:.1f}" for path, size in files.items())
    )


def main() -> None:
    """Measure, and print figures beside estimates."""
    folder, rows = rows_asked_for(__doc__)
    snapshot = largest_tenant(folder, rows)
    held = sum(segment.rows for segment in snapshot.segments)
    print(f"{held:,} rows of the largest tenant; {rows:,} rows in all")
    with served(snapshot.segments, folder) as client:
        figures: dict[str, float] = {"of the tenant, rows": held}
        estimated: dict[str, float] = {}
        for line in LINES:
            figures |= measure(client, line)
            estimated[f"{line.name}: first byte, ms"] = line.first_byte_ms
            estimated[f"{line.name}: whole page to API, ratio"] = line.ratio
        record("audit page", figures, estimated=estimated)
        weigh(client)


if __name__ == "__main__":
    main()
