"""Output of `countersign audit query --explain`: a query's plan and what it has read."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from analytics.query.executor import ScanReport
from service.cli.context import table

_COLUMNS: Final = {
    "scan": "scan",
    "first_day": "from day",
    "last_day": "to day",
    "segments": "segments",
    "journal_batches": "journal batches",
    "estimated_rows": "rows at most",
    "rows": "rows",
    "files": "files read",
    "row_groups": "row groups",
    "cached_segments": "segments cached",
    "ms": "ms",
}


def plan_json(reports: Sequence[ScanReport]) -> list[dict[str, Any]]:
    """One object per scan, in the order in which they ran."""
    return [
        asdict(report)
        | {
            "first_day": None if report.first_day is None else report.first_day.isoformat(),
            "last_day": None if report.last_day is None else report.last_day.isoformat(),
            "ms": round(report.ms, 3),
        }
        for report in reports
    ]


def plan_table(reports: Sequence[ScanReport]) -> Table:
    """The same for people."""
    lines = plan_json(reports)
    cells = [[line[name] for name in _COLUMNS] for line in lines]
    return table("Plan", list(_COLUMNS.values()), cells)
