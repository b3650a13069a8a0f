"""The rows that pages are asked of: a large tenant, and one with a row a day."""

import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import msgspec

from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import write_segment
from benchmarks.lake import DAYS, FIRST_DAY, SETS, VERSION, day_rows, tenant_id


def stored_rows(rows: int) -> tuple[list[Segment], Path]:
    """`rows` of the large tenant over DAYS days, generated unless they exist, and their folder."""
    folder = SETS / f"fleet-{rows}-v{VERSION}"
    catalog = folder / "catalog.json"
    if not catalog.exists():
        shutil.rmtree(folder, ignore_errors=True)  # what broke off
        (folder / "audit").mkdir(parents=True)
        catalog.write_bytes(msgspec.json.encode(_generate(folder / "audit", rows // DAYS)))
    segments = msgspec.json.decode(catalog.read_bytes(), type=list[Segment])
    return segments, folder / "audit"


def _generate(root: Path, a_day: int) -> list[Segment]:
    segments, first = [], 1
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for day in (FIRST_DAY + timedelta(days=number) for number in range(DAYS)):
            for rank, count in enumerate((a_day, 1)):
                rows = day_rows(connection, first, count, day, rank)
                name = f"seg_{first}"
                segments.append(write_segment(root, tenant_id(rank), day, name, rows))
                first += count
    return segments
