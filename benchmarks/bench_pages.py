"""Claim: pages and summaries of a large tenant are found sooner than DuckDB alone finds them.

The peer of each line is plain DuckDB, handed the same files in the same run. Our caches are warm,
as they are in a service that runs; so are DuckDB's and the operating system's. What our first
search for a value lets us learn about the files is learnt, and the time that took is shown.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from analytics.cursors import Position
from analytics.decoded import Decoded
from analytics.engine import Engine, EngineLimits
from analytics.filters import parse_query
from analytics.queries import Reader, Snapshot
from analytics.summaries import Bucket, over_time, summarise
from analytics.values import ValueIndex
from benchmarks.lake import RARE_PACKAGE, largest_tenant, rarely_installed, rows_asked_for

ROUNDS = 15
PAGE = 51
LIMITS = EngineLimits(memory_mb=2048, temp_mb=8192, threads=2)
NEWEST = f"ORDER BY created_at DESC, seq DESC LIMIT {PAGE}"
HISTOGRAM = "SELECT created_at::DATE AS day, decision, count(*) AS n FROM rows GROUP BY ALL"
TOPS = [
    f"SELECT {column}, count(*) AS n FROM rows GROUP BY ALL ORDER BY n DESC, {column} LIMIT 10"
    for column in ("event", "package_name", "actor", "decision")
]


@dataclass(frozen=True)
class Line:
    """One figure: our question, the same one in SQL over `rows`, and the ratio we expected."""

    name: str
    ask: Callable[[], object]
    sql: Sequence[str]
    estimate: float


def lines(reader: Reader, snapshot: Snapshot) -> list[Line]:
    """What people ask of an audit log, from the common to the rare."""
    middle = sorted(snapshot.segments, key=lambda one: one.day)[len(snapshot.segments) // 2]
    after = Position(snapshot.watermark, middle.max_created_at, middle.max_seq)
    everything = parse_query({})

    def page(position: Position | None = None, **filters: str) -> Callable[[], pa.Table]:
        query = parse_query({name: [value] for name, value in filters.items()})
        return lambda: reader.page(snapshot, query, PAGE, position)

    others = map(rarely_installed, itertools.count(1, 4))  # asked for once each
    at = f"'{middle.max_created_at.isoformat()}'::TIMESTAMPTZ"
    behind = f"created_at <= {at} AND (created_at < {at} OR seq < {middle.max_seq})"
    return [
        Line("newest page", page(), [f"SELECT * FROM rows {NEWEST}"], 0.05),
        Line("common value", page(decision="BLOCKED"), [_where("decision = 'BLOCKED'")], 0.05),
        Line(
            "rare package",
            page(package=RARE_PACKAGE),
            [_where(f"package_name = '{RARE_PACKAGE}'")],
            0.8,
        ),
        Line(
            "other rare package",
            lambda: page(package=next(others))(),
            [_where(f"package_name = '{rarely_installed(1)}'")],
            0.8,
        ),
        Line("value nowhere", page(package="nowhere"), [_where("package_name = 'nowhere'")], 1.0),
        Line("middle by cursor", page(after), [_where(behind)], 0.05),
        Line(
            "90-day histogram",
            lambda: over_time(reader, snapshot, everything, Bucket.DAY),
            [HISTOGRAM],
            0.02,
        ),
        Line(
            "summary with tops",
            lambda: summarise(reader, snapshot, everything, None, Bucket.DAY),
            [HISTOGRAM, *TOPS],
            0.5,
        ),
    ]


def _where(condition: str) -> str:
    return f"SELECT * FROM rows WHERE {condition} {NEWEST}"


def median_ms(action: Callable[[], Any]) -> float:
    """The median duration of `action`, in milliseconds, after one that warms up."""
    action()
    durations = []
    for _ in range(ROUNDS):
        began_at = time.perf_counter()
        action()
        durations.append((time.perf_counter() - began_at) * 1000)
    return statistics.median(durations)


def measure(folder: Path, rows: int) -> None:
    """Print each line's figure beside its peer's."""
    snapshot = largest_tenant(folder, rows)
    root, temp = folder / "audit", folder / "tmp"
    temp.mkdir(exist_ok=True)
    decoded = Decoded(root, 256 * 2**20)
    values = ValueIndex(decoded)
    reader = Reader(Engine(root, temp, LIMITS), root, decoded, values=values)
    peer = duckdb.connect(":memory:", config={"threads": LIMITS.threads})
    peer.execute("SET TimeZone = 'UTC'")
    files = [str(segment.path(root)) for segment in snapshot.segments]
    peer.read_parquet(files, hive_partitioning=False).create_view("rows")
    held = sum(segment.rows for segment in snapshot.segments)
    print(f"{held:,} rows of the largest tenant in {len(files)} files; {rows:,} rows in all")
    for line in lines(reader, snapshot):
        line.ask()
        began_at = time.perf_counter()
        values.learn()  # as a service does aside, after the first query that could have used it
        learnt_ms = (time.perf_counter() - began_at) * 1000
        ours = median_ms(line.ask)
        theirs = median_ms(lambda sql=line.sql: [peer.sql(one).to_arrow_table() for one in sql])
        print(
            f"{line.name:<18} {ours:8.2f} ms   DuckDB alone {theirs:8.2f} ms"
            f"   ratio {ours / theirs:5.2f}   (estimated {line.estimate:.2f})"
            + (f"   after learning for {learnt_ms:.0f} ms" if learnt_ms > 1 else "")
        )
    reader.engine.close()
    peer.close()


def main() -> None:
    """Measure, and print figures beside estimates."""
    measure(*rows_asked_for(__doc__))


if __name__ == "__main__":
    main()
