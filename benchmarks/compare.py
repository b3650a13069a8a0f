"""The same questions, on the same rows, in the same run, for Countersign and its peers.

`python -m benchmarks.compare --size 2m` measures one engine after the other, each in a process of
its own, prints the figures and writes them to benchmarks/results. An engine whose answer differs
from ours ends the run: figures for a wrong answer are meaningless.
"""

import argparse
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.engines import ENGINES, Source, engine_class
from benchmarks.lake import SETS, VERSION
from benchmarks.machine import machine
from benchmarks.measure import OURS
from benchmarks.results import RESULTS, write
from benchmarks.tables import text_tables
from benchmarks.workload import AFTER_RESTART, SIZES

KEPT_ROWS_MAX: Final = 2_000_000
"""Up to this size the engines' loaded data is kept, which makes a second run faster."""
SPARE_BYTES: Final = 2 * 10**9


def not_here(name: str, source: Source) -> str | None:
    """Why the engine cannot run, or None: it is not installed, or the disk is too full."""
    folder = source.folder / "engines" / name
    try:
        engine = engine_class(name)(folder, source)
    except (ImportError, FileNotFoundError) as missing:
        return f"not run: {missing}"
    needed = engine.needs_bytes_a_row * source.rows + SPARE_BYTES
    free = shutil.disk_usage(source.folder).free
    if needed > free and not folder.exists():
        return f"not run: needs {needed / 1e9:,.0f} GB, {free / 1e9:,.0f} GB free"
    return None


def measured(name: str, source: Source, rows: int, ingest_s: float) -> dict[str, Any]:
    """The figures of one engine. Raises CalledProcessError.

    It runs in a process of its own, and in another one for each first query after a restart.
    """
    (source.folder / "engines").mkdir(exist_ok=True)
    out, answers = (source.folder / "engines" / end for end in (f"{name}.json", "answers"))
    command = [sys.executable, "-m", "benchmarks.measure", "--engine", name, "--rows", str(rows)]
    command += ["--folder", str(source.folder), "--answers", str(answers), "--out", str(out)]
    subprocess.run([*command, "--ingest-s", str(ingest_s)], check=True)
    figures: dict[str, Any] = json.loads(out.read_text())
    figures["after_restart"] = {}
    for question in AFTER_RESTART:
        subprocess.run([*command, "--first", question], check=True)
        figures["after_restart"][question] = json.loads(out.read_text())
    return figures


def compare(
    source: Source, rows: int, names: list[str], *, keep: bool, ingest_s: float
) -> dict[str, Any]:
    """The figures of each of the engines `names`, or why it was not run."""
    found: dict[str, Any] = {}
    for name in names:
        print(f"{ENGINES[name]} …", file=sys.stderr, flush=True)
        if (reason := not_here(name, source)) is not None:
            print(f"  {reason}", file=sys.stderr)
            found[name] = {"not_run": reason}
            continue
        found[name] = measured(name, source, rows, ingest_s)
        if not keep:
            shutil.rmtree(source.folder / "engines" / name, ignore_errors=True)
    return found


def main() -> None:
    """Compare; print and store the figures."""
    given = _arguments()
    rows = SIZES[given.size]
    source = Source.of(given.folder / f"rows-{rows}-v{VERSION}", rows)
    names = [name for name in ENGINES if name == OURS or name in given.engines]
    keep = given.keep or rows <= KEPT_ROWS_MAX
    figures = {
        "size": given.size,
        "rows": source.rows,
        "tenant_rows": sum(segment.rows for segment in source.largest),
        "taken_on": str(datetime.now(UTC).date()),
        "machine": machine(),
        "engines": compare(source, rows, names, keep=keep, ingest_s=given.ingest_s),
    }
    print(text_tables(figures))
    if set(names) == set(ENGINES):  # results of only some engines are not stored
        write(RESULTS / f"{given.size}.json", figures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="2m", help="rows of all tenants together")
    parser.add_argument(
        "--engines", nargs="*", choices=ENGINES, default=list(ENGINES), help="only these beside us"
    )
    parser.add_argument("--keep", action="store_true", help="keep what engines made of a large set")
    parser.add_argument(
        "--ingest-s", type=float, default=3.0, help="seconds of each kind of ingest"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=SETS,
        help="where rows and engines' sets are kept (BENCHMARKS_DIR)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
