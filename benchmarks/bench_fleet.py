"""Claim: beyond one machine, a page stays as fast, and writes wait for one sync after the other.

Every figure stands beside that of SQLite and a local folder from the same run. `--quick` shows in
a minute that everything works; its figures say nothing and are marked as such.
"""

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.fleet import ingest, pages, publication
from benchmarks.fleet.rows import stored_rows
from benchmarks.fleet.sizes import QUICK, REAL, Size
from benchmarks.machine import machine
from benchmarks.results import FLEET, write
from tests.seaweedfs import running_seaweedfs


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, in about a minute")
    parser.add_argument("--rough", action="store_true", help="print, and record nothing")
    options = parser.parse_args()
    size = QUICK if options.quick else REAL
    figures = measured(size)
    if not options.rough:
        write(
            FLEET,
            {
                "machine": machine(),
                "taken_on": str(datetime.now(UTC).date()),
                "is_quick": size.is_quick,
                "figures": figures,
            },
        )


def measured(size: Size) -> dict[str, Any]:
    """The figures of each part, by their names and columns."""
    segments, audit = stored_rows(size.rows)
    figures: dict[str, Any] = {"rows": sum(segment.rows for segment in segments)}
    figures |= _said({"databases": pages.of_databases(segments, audit, size)})
    with (
        tempfile.TemporaryDirectory(prefix="seaweedfs-") as folder,
        running_seaweedfs(Path(folder)) as objects,
    ):
        warm, cold = pages.of_stores(segments, audit, objects, size)
        figures |= _said({"warm": warm, "cold": cold})
        figures |= _said({"processor": pages.beside_a_writer(segments, audit, objects, size)})
    figures |= _said({"ingest": ingest.of_all(size)})
    published, catalog = publication.of_all(size)
    figures |= _said({"publication": published, "catalog": catalog})
    return figures


def _said(part: dict[str, Any]) -> dict[str, Any]:
    """`part`, printed: a run takes minutes."""
    print(json.dumps(part, indent=1, default=str), flush=True)
    return part


if __name__ == "__main__":
    main()
