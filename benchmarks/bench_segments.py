"""Claim: segments are written and merged at a million rows per second, and are small.

The peer writes the same rows, already sorted, with pyarrow's own defaults for zstd: no bloom
filters, no page index, no synced names, no digest, no catalog line.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.storage.compaction import merge_segments
from analytics.storage.segment_writer import newest_first, write_segment
from benchmarks.lake import FIRST_DAY, day_rows
from benchmarks.results import record

ROWS = 1_000_000
PARTS = 20
ROUNDS = 3
TENANT = "org_bench"


def rows_per_s(rows: int, action: Callable[[int], object]) -> float:
    """The median speed of `action`, which processes `rows` and gets the round's number."""
    took_s = []
    for number in range(ROUNDS):
        began_at = time.perf_counter()
        action(number)
        took_s.append(time.perf_counter() - began_at)
    return rows / statistics.median(took_s)


def report(name: str, ours: float, peer: float, estimate: float) -> None:
    """One line: a speed beside the peer's."""
    print(
        f"{name:<22}{ours / 1e6:6.2f} M rows/s   pyarrow alone {peer / 1e6:6.2f}"
        f"   ratio {ours / peer:5.2f}   (estimated {estimate:.2f} M rows/s)"
    )


def measure(root: Path, rows: pa.Table) -> None:
    """Print the cost of writing and merging a day of rows, and its size on disk."""
    ordered, count = newest_first(rows), rows.num_rows
    plain = root / "plain.parquet"
    peer = rows_per_s(count, lambda _: pq.write_table(ordered, plain, compression="zstd"))
    seal = rows_per_s(count, lambda n: write_segment(root, TENANT, FIRST_DAY, f"seg_{n}", rows))
    report("write", seal, peer, 1.2)
    # As rows arrive during a day: each part spans some of it, and overlaps its neighbours.
    cut = count // PARTS
    parts = [
        write_segment(root, TENANT, FIRST_DAY, f"seg_part{n}", rows.slice(n * cut, cut))
        for n in range(PARTS)
    ]
    merge = rows_per_s(count, lambda n: merge_segments(root, parts, f"seg_merged{n}"))
    report(f"merge of {PARTS}", merge, peer, 0.8)
    whole = write_segment(root, TENANT, FIRST_DAY, "seg_whole", rows)
    print(
        f"{'bytes a row':<22}{whole.size / count:6.1f}            "
        f"pyarrow alone {plain.stat().st_size / count:6.1f}"
    )
    record(
        "segments",
        {
            "write, rows/s": seal,
            "write by pyarrow alone, rows/s": peer,
            f"merge of {PARTS}, rows/s": merge,
            "size of a row, bytes": whole.size / count,
            "size of a row by pyarrow alone, bytes": plain.stat().st_size / count,
        },
        estimated={"write, rows/s": 1_200_000, f"merge of {PARTS}, rows/s": 800_000},
    )


def main() -> None:
    """Measure, and print figures beside estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"{PARTS} or more")
    rows = parser.parse_args().rows
    with duckdb.connect(":memory:") as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute("SET TimeZone = 'UTC'")
        measure(Path(folder), day_rows(connection, 1, rows, FIRST_DAY))


if __name__ == "__main__":
    main()
