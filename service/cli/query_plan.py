"""Output of `countersign audit query --explain`: a query's plan and what it has read."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from analytics.query.executor import ScanReport
from service.audit.query_service import parse_page_request
from service.cli.answers import Answer
from service.cli.context import CommandContext
from service.cli.tables import Table
from service.store.organisations import get_org

_COLUMNS: Final = {
    "scan": "scan",
    "from day": "first_day",
    "to day": "last_day",
    "segments": "segments",
    "journal batches": "journal_batches",
    "rows at most": "estimated_rows",
    "rows": "rows",
    "files read": "files",
    "row groups": "row_groups",
    "segments cached": "cached_segments",
    "ms": "ms",
}


async def plan_answer(
    context: CommandContext, slug: str, parameters: Mapping[str, list[str]]
) -> Answer:
    """The plan of a page's query, with one object per scan in the order in which they ran."""
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    reports: list[ScanReport] = []
    wanted = parse_page_request(parameters)
    await services.audit_queries.page(org, wanted, services.clock(), reports=reports)
    plan = _plan(reports)
    return Answer({"org": slug, "plan": plan}, table=Table.of("Plan", plan, _COLUMNS))


def _plan(reports: Sequence[ScanReport]) -> list[dict[str, Any]]:
    return [
        asdict(report)
        | {
            "first_day": None if report.first_day is None else report.first_day.isoformat(),
            "last_day": None if report.last_day is None else report.last_day.isoformat(),
            "ms": round(report.ms, 3),
        }
        for report in reports
    ]
