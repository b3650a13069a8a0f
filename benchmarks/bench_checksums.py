"""Claim: verified files cost 3 % of a newest page, 10 % of a first look or a merge, 5 % of exports.

With `--beside PATH`, a checkout of another version (18f0d7c2 is the last one that verified nothing:
`git worktree add PATH 18f0d7c2`), each round measures both, in turn, in processes of their own and
over files that each of them wrote. Without it, only this version is measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import duckdb
import msgspec

from analytics.cache.results import ResultCache
from analytics.cache.row_groups import Decoded
from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.model.filters import Query
from analytics.query.engine import Engine, EngineLimits
from analytics.query.planner import Planner
from analytics.query.reader import Reader
from analytics.query.scans import Resources
from analytics.statistics.value_index import ValueIndex
from analytics.storage.compaction import merge_segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_store import LocalFolder
from analytics.storage.segment_writer import write_segment
from analytics.storage.snapshot import Snapshot

ROWS = 1_000_000
DAYS = 20
PARTS = 10
ROUNDS = 7
PAGES = 200
TENANT = "org_bench00"
LIMITS = EngineLimits(memory_mb=1024, temp_mb=4096, threads=2)
AT_MOST = {"newest page": 3, "first look": 10, "export": 5, "merge": 10}
"""Per cent."""


def write(folder: Path, rows: int) -> None:
    """Write DAYS days of rows below `folder`, and one more of PARTS segments."""
    from benchmarks.lake import FIRST_DAY, day_rows

    root, each = folder / "audit", rows // (DAYS + 1)
    root.mkdir()
    segments: list[Segment] = []
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number in range(DAYS + 1):
            day = FIRST_DAY + timedelta(days=number)
            table = day_rows(connection, 1 + number * each, each, day)
            parts = PARTS if number == 0 else 1
            cut = each // parts
            segments += (
                write_segment(
                    root, TENANT, day, f"seg_{number}x{part}", table.slice(part * cut, cut)
                )
                for part in range(parts)
            )
    (folder / "catalog.json").write_bytes(msgspec.json.encode(segments))


class Figures(dict[str, float]):
    """Milliseconds by kind of work: by the clock, and of processors, which others disturb less."""

    def add(self, kind: str, work: Callable[[], object], times: int = 1) -> None:
        """Do `work`, and keep what it took; the median if it is done several times."""
        took_ms, busy_ms = [], []
        for _ in range(times):
            began_at, busy_at = time.perf_counter(), time.process_time()
            work()
            took_ms.append((time.perf_counter() - began_at) * 1000)
            busy_ms.append((time.process_time() - busy_at) * 1000)
        self[kind] = statistics.median(took_ms)
        self[f"{kind}, processor"] = statistics.median(busy_ms)


def measure(folder: Path) -> dict[str, float]:
    """Milliseconds of each kind of work, by a process that has read nothing yet."""
    root = folder / "audit"
    every = msgspec.json.decode((folder / "catalog.json").read_bytes(), type=list[Segment])
    parts, days = every[:PARTS], every[PARTS:]
    log = Snapshot(TENANT, max(segment.max_seq for segment in every), tuple(days), ())
    with closing(LocalFolder(root)) as store:
        decoded, results = Decoded(store, 2**28), ResultCache(2**26)
        with closing(Engine(root, folder / "temp", LIMITS)) as engine:
            engine.open()
            reader = Reader(
                Planner(ValueIndex(store, 2**26), decoded, results),
                Resources(engine, store, decoded, results),
            )
            merged = folder / "merged"
            merged.mkdir(exist_ok=True)
            figures = Figures()
            figures.add("first look", lambda: reader.page(log, Query(), 50))
            figures.add("newest page", lambda: reader.page(log, Query(), 50), PAGES)
            figures.add("first grouping of all days", lambda: group(reader, log))
            figures.add("export", lambda: export(reader, log))
            figures.add("merge", lambda: merge(store, parts, merged))
    return figures


def group(reader: Reader, log: Snapshot) -> None:
    """Have DuckDB read two columns of all files."""
    reader.groups(log, Query(), ["package_name", "decision"], 10)


def export(reader: Reader, log: Snapshot) -> None:
    """Make the file, and discard it."""
    for _ in export_pieces(reader.stream(log, Query()), TENANT, FileEncoding(ExportFormat.CSV)):
        pass


def merge(store: LocalFolder, parts: list[Segment], into: Path) -> None:
    """Merge `parts`, as the compactor does."""
    with store.local(parts):
        merge_segments(store.root, parts, "seg_merged", into)


def run_in(checkout: Path, *arguments: str) -> str:
    """What this script prints with the code of `checkout`."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment,
        cwd=checkout,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def compare(
    checkouts: dict[str, Path], rows: int, folder: Path
) -> dict[str, dict[str, list[float]]]:
    """The figures of ROUNDS rounds, by checkout and kind of work."""
    for name, checkout in checkouts.items():
        (folder / name).mkdir()
        run_in(checkout, "--write", str(folder / name), "--rows", str(rows))
    found: dict[str, dict[str, list[float]]] = {name: {} for name in checkouts}
    for number in range(ROUNDS):
        # In turn, and each first as often as the other: what the machine does falls on both.
        order = list(checkouts.items())
        for name, checkout in order if number % 2 else reversed(order):
            figures = json.loads(run_in(checkout, "--measure", str(folder / name)))
            for kind, took_ms in figures.items():
                found[name].setdefault(kind, []).append(took_ms)
    return found


def show(found: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Print each figure with its spread; those to be recorded."""
    recorded: dict[str, float] = {}
    before = found.get("before")
    for kind, own in found["now"].items():
        line = f"{kind:<36}{statistics.median(own):9.2f} ms ({min(own):.2f} to {max(own):.2f})"
        recorded[f"{kind}, ms"] = statistics.median(own)
        if before is not None:
            theirs = before[kind]
            ratios = [now / then for now, then in zip(own, theirs, strict=True)]
            more = statistics.median(own) / statistics.median(theirs) - 1
            line += (
                f"   before {statistics.median(theirs):9.2f} ms"
                f" ({min(theirs):.2f} to {max(theirs):.2f})   {more:+.1%}"
                f" (rounds {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})"
            )
            if kind in AT_MOST:
                line += f"   at most {AT_MOST[kind]} %"
            recorded[f"{kind}: more than before, %"] = 100 * more
        print(line)
    return recorded


def main() -> None:
    """Compare, or do one step of it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--beside", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write is not None:
        write(given.write, given.rows)
    elif given.measure is not None:
        print(json.dumps(measure(given.measure)))
    else:
        from benchmarks.results import record

        checkouts = {"now": Path(__file__).parents[1]}
        if given.beside is not None:
            checkouts["before"] = given.beside.resolve()
        with tempfile.TemporaryDirectory() as folder:
            figures = show(compare(checkouts, given.rows, Path(folder)))
        if given.beside is not None:
            record("checksums", figures)


if __name__ == "__main__":
    main()
