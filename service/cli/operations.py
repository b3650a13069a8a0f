"""`countersign audit check`: whether what is stored is what it should be."""

import click

from service.audit.checks import Check
from service.cli.audit import audit
from service.cli.desk import EXIT_DONE, EXIT_FOUND, Answer, Desk, command
from service.cli.progress import row_progress
from service.orgs.repository import get_org


@command(audit, "check")
@click.option("--org", "slug", metavar="SLUG", help="Only this organisation; else all of them.")
async def audit_check(desk: Desk, slug: str | None) -> Answer:
    """Read everything stored and compare it with the catalog.

    Exit code 1 means that something was found. The service may be running.
    """
    here = desk.services
    async with here.store.read() as session:
        org = None if slug is None else await get_org(session, slug)
    with row_progress("Checking") as show:
        report = await Check(here, org, show).run()
    findings = [report.line(finding) for finding in report.findings]
    notes = [report.line(note) for note in report.notes]
    return Answer(
        {
            "segments": report.segments,
            "batches": report.batches,
            "rows": report.rows,
            "findings": findings,
            "notes": notes,
        },
        [
            *(_sentence("finding", line) for line in findings),
            *(_sentence("note", line) for line in notes),
            f"Checked {report.rows} rows in {report.segments} segments and {report.batches} journal"
            f" batches: {len(findings) or 'no'} findings.",
        ],
        code=EXIT_FOUND if findings else EXIT_DONE,
    )


def _sentence(what: str, line: dict[str, str | None]) -> str:
    place = " ".join(line[name] or "–" for name in ("org", "day", "segment"))
    return f"{what}: {line['kind']}: {place}: {line['detail']}"
