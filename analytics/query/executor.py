"""Runs the scans of a page, and records what each was expected to read and did read."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import pyarrow as pa

from analytics.model.schema import NO_ROWS
from analytics.query.planner import RowScan
from analytics.query.scans import Resources, Work


@dataclass(frozen=True, slots=True)
class ScanReport:
    """One scan of a plan: what it covers, what was expected of it, and what it took.

    `estimated_rows` are at most so many, null if that is not known. `files` are those that rows
    were read from, `row_groups` those looked at in memory, and `cached_segments` those whose rows
    an earlier query had found.
    """

    scan: str
    first_day: date | None
    last_day: date | None
    segments: int
    journal_batches: int
    estimated_rows: int | None
    rows: int
    files: int
    row_groups: int
    cached_segments: int
    ms: float


def first_rows(
    scans: Iterable[RowScan], resources: Resources, limit: int, reports: list[ScanReport] | None
) -> pa.Table:
    """The first `limit` rows of `scans`, each of which begins after the one before.

    What each has read is added to `reports`, if there are any.
    """
    pieces = [NO_ROWS]
    missing = limit
    for scan in scans:
        work, began_at = Work(), time.perf_counter()
        rows = scan.first(resources, missing, work)
        if reports is not None:
            ms = (time.perf_counter() - began_at) * 1000
            reports.append(_report(scan, rows.num_rows, work, ms))
        pieces.append(rows)
        missing -= rows.num_rows
        if missing == 0:
            break
    return pa.concat_tables(pieces)


def _report(scan: RowScan, rows: int, work: Work, ms: float) -> ScanReport:
    segments, batches = scan.part.segments, scan.part.batches
    days = [segment.day for segment in segments] + [batch.day for batch in batches]
    return ScanReport(
        scan=scan.name,
        first_day=min(days, default=None),
        last_day=max(days, default=None),
        segments=len(segments),
        journal_batches=len(batches),
        estimated_rows=scan.estimate,
        rows=rows,
        files=work.files,
        row_groups=work.row_groups,
        cached_segments=work.cached_segments,
        ms=round(ms, 3),
    )
