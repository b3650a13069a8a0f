"""Imports files into the audit log: what `countersign audit import` does."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from analytics.imports.chunks import ImportFormat, UnreadableFile
from analytics.imports.validation import Refused
from analytics.model.errors import StoreFault
from analytics.model.instants import format_ms, optional_ms
from service.audit.importer import Imported, Job, Watch
from service.cli.answers import Answer, one_line
from service.cli.context import CommandContext
from service.cli.files import STANDARD_OUTPUT, new_file
from service.cli.lease_wait import lost_lease_as_taken
from service.cli.progress import byte_progress
from service.cli.proposals import printable
from service.cli.sources import listed_names, open_source
from service.core.errors import Refusal
from service.core.exit_codes import ExitCode, exit_code
from service.store.organisations import get_org
from service.store.tables import Organisation

SHOWN_MAX: Final = 20
"""Refused rows of a file listed in the text output."""

LISTED_MAX: Final = 1_000
"""Refused rows of all files listed in the JSON output; --report has every one."""


@dataclass(slots=True)
class _Outcome:
    """The outcome of importing one file."""

    name: str
    imported: Imported | None = None
    error: Exception | None = None
    refused: int = 0
    first_refused: list[Refused] = field(default_factory=list)
    is_partial: bool = False

    @property
    def status(self) -> str:
        if self.imported is None:
            return "failed"
        if self.imported.known_since is not None:
            return "skipped"
        if self.imported.rows:
            return "imported"
        return "refused" if self.refused else "empty"

    @property
    def code(self) -> ExitCode:
        if self.error is not None:
            return exit_code(self.error)
        return ExitCode.FAILED if self.status == "refused" else ExitCode.DONE

    def data(self) -> dict[str, Any]:
        """For scripts."""
        done = self.imported
        since = None if done is None else done.known_since
        return {
            "file": self.name,
            "sha256": None if done is None else done.sha256,
            "status": self.status,
            "rows": 0 if done is None else done.rows,
            "refused": self.refused,
            "skipped": self.status == "skipped",
            "imported_at": optional_ms(since),
            "days": [] if done is None else [str(day) for day in done.days],
            "error": None if self.error is None else one_line(self.error),
            "refused_rows": [{"line": row.line, "error": row.error} for row in self.first_refused],
        }

    def lines(self) -> list[str]:
        """For people."""
        shown = [
            f"  line {row.line}: {printable(row.error)}" for row in self.first_refused[:SHOWN_MAX]
        ]
        if self.refused > len(shown):
            shown.append(f"  and {self.refused - len(shown)} more (--report FILE lists all)")
        return [f"{printable(self.name)}: {self._summary()}", *shown]

    def _summary(self) -> str:
        done = self.imported
        if done is None:
            return f"failed, nothing was imported: {printable(one_line(self.error or OSError()))}"
        if done.known_since is not None:
            return f"skipped: the same content was imported on {format_ms(done.known_since)}"
        if done.rows:
            left_out = f", {self.refused} refused" if self.refused else ""
            return f"{done.rows} rows of {len(done.days)} days imported{left_out}"
        if self.refused:
            hint = "" if self.is_partial else " (--partial imports the others)"
            return f"nothing was imported: {self.refused} rows refused{hint}"
        return "nothing was imported: the file has no rows"


@dataclass(frozen=True, slots=True)
class Terms:
    """Options that apply to every file of one command."""

    format: ImportFormat | None
    is_raw: bool
    is_partial: bool
    wait_s: float


@dataclass(slots=True)
class _Refusals:
    """Collects refused rows: all of them in the report, up to LISTED_MAX in the outcomes."""

    report: BinaryIO | None
    listed: int = 0

    def add(self, outcome: _Outcome, refused: Sequence[Refused]) -> None:
        """Add refused rows of the outcome's file."""
        outcome.refused += len(refused)
        listed = refused[: LISTED_MAX - self.listed]
        outcome.first_refused += listed
        self.listed += len(listed)
        if self.report is not None:
            for row in refused:
                line = {"file": outcome.name, "line": row.line, "error": row.error}
                self.report.write(json.dumps(line).encode() + b"\n")


async def import_files(
    context: CommandContext,
    slug: str,
    files: Sequence[str],
    list_path: str | None,
    report_path: Path | None,
    terms: Terms,
) -> Answer:
    """Import `files` and those that are named in the file `list_path`, one after the other."""
    names = [*files, *(listed_names(list_path) if list_path else ())]
    async with context.services.store.read() as session:
        org = await get_org(session, slug)
    with ExitStack() as stack:
        report = (
            stack.enter_context(new_file(report_path, is_forced=False)) if report_path else None
        )
        refusals = _Refusals(report)
        outcomes = [await _import(context, org, name, terms, refusals) for name in names]
    return Answer(
        {"org": slug, "files": [outcome.data() for outcome in outcomes]},
        lines=[line for outcome in outcomes for line in outcome.lines()],
        is_on_stderr=report_path == STANDARD_OUTPUT,
        code=_code([outcome.code for outcome in outcomes]),
    )


def _code(codes: Sequence[ExitCode]) -> ExitCode:
    """The code of all files: a refusal outweighs temporary failures, as retrying is not enough."""
    return ExitCode.FAILED if ExitCode.FAILED in codes else max(codes, default=ExitCode.DONE)


async def _import(
    context: CommandContext, org: Organisation, name: str, terms: Terms, refusals: _Refusals
) -> _Outcome:
    """Import one file; a failure does not keep the next file from being imported."""
    services, outcome = context.services, _Outcome(name, is_partial=terms.is_partial)
    try:
        async with open_source(
            name, terms.format, services.lake, services.settings.temp_dir, is_raw=terms.is_raw
        ) as source:
            with lost_lease_as_taken(), byte_progress(f"Importing {printable(name)}") as show:
                watch = Watch(
                    on_progress=lambda done: show(done, source.size),
                    on_refused=lambda refused: refusals.add(outcome, refused),
                )
                job = Job(org, source, context.audit_context, terms.is_partial)
                outcome.imported = await services.importer.take(job, watch, terms.wait_s)
    except (Refusal, UnreadableFile, StoreFault, OSError) as error:
        outcome.error = error
    return outcome
