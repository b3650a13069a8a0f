"""Runs the scans of a plan, and records what each was expected to read and did read."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from analytics.model.schema import NO_ROWS
from analytics.query.scans import (
    CachedRowsScan,
    CatalogAnswer,
    CountScan,
    DuckDBScan,
    IndexAnswer,
    Resources,
    RowScan,
    Work,
)
from analytics.storage.journal_batches import JournalBatch


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


@dataclass(slots=True)
class Executor:
    """Runs scans with `resources`, and adds what each has read to `reports`, if there are any."""

    resources: Resources
    reports: list[ScanReport] | None = None

    def page(self, scans: Iterable[RowScan], limit: int) -> pa.Table:
        """The first `limit` rows of `scans`, each of which begins after the one before."""
        pieces = [NO_ROWS]
        missing = limit
        for scan in scans:
            with self._reported(scan) as done:
                rows = scan.first(self.resources, missing, done.work)
                done.rows = rows.num_rows
            pieces.append(rows)
            missing -= rows.num_rows
            if missing == 0:
                break
        return pa.concat_tables(pieces)

    def count(self, scans: Iterable[CountScan]) -> int:
        """The rows of all `scans`."""
        total = 0
        for scan in scans:
            with self._reported(scan) as done:
                if isinstance(scan, CatalogAnswer | IndexAnswer):
                    done.rows = sum(scan.counts.values())
                else:
                    done.rows = scan.count(self.resources, done.work)
            total += done.rows
        return total

    def each(
        self,
        scans: Iterable[CountScan],
        run: Callable[[CachedRowsScan | DuckDBScan, Work], Any],
    ) -> Iterator[tuple[CountScan, Any]]:
        """Each of `scans` with what `run` makes of it; None for answers: they have counts."""
        for scan in scans:
            result = None
            with self._reported(scan) as done:
                if isinstance(scan, CatalogAnswer | IndexAnswer):
                    done.rows = sum(scan.counts.values())
                else:
                    result = run(scan, done.work)
            yield scan, result

    @contextmanager
    def _reported(self, scan: RowScan | CountScan) -> Iterator["_Done"]:
        done, began_at = _Done(), time.perf_counter()
        yield done
        if self.reports is not None:
            ms = (time.perf_counter() - began_at) * 1000
            self.reports.append(_report(scan, done, ms))


@dataclass(slots=True)
class _Done:
    """What a scan has read, and how many rows it found."""

    work: Work = field(default_factory=Work)
    rows: int = 0


def _report(scan: RowScan | CountScan, done: _Done, ms: float) -> ScanReport:
    if isinstance(scan, CatalogAnswer | IndexAnswer):
        segments, batches, estimated = scan.segments, tuple[JournalBatch, ...](), None
    else:
        segments, batches, estimated = scan.part.segments, scan.part.batches, scan.estimate
    days = [segment.day for segment in segments] + [batch.day for batch in batches]
    return ScanReport(
        scan=scan.name,
        first_day=min(days, default=None),
        last_day=max(days, default=None),
        segments=len(segments),
        journal_batches=len(batches),
        estimated_rows=estimated,
        rows=done.rows,
        files=done.work.files,
        row_groups=done.work.row_groups,
        cached_segments=done.work.cached_segments,
        ms=round(ms, 3),
    )
