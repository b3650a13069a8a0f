"""`countersign audit import`: import rows with their original timestamps."""

import json
import os
import select
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from analytics.imports.chunks import ImportFormat, UnreadableFile, file_kind
from analytics.imports.validation import Refused
from analytics.model.errors import StoreFault
from analytics.model.instants import format_ms, optional_ms
from service.audit.importer import ImportFile, ImportJob, ImportResult, ImportWatch
from service.audit.lake import Lake
from service.cli.audit import audit
from service.cli.commands import CommandContext, data_dir_command, org_option
from service.cli.files import STANDARD_INPUT, STANDARD_OUTPUT, new_file
from service.cli.lease_wait import lost_lease_as_taken
from service.cli.output import CommandResult, one_line, printable
from service.cli.progress import byte_progress
from service.core.errors import Invalid, Refusal
from service.core.exit_codes import ExitCode, exit_code
from service.store.organisations import get_org
from service.store.tables import Organisation

_WAIT_S: Final = 30.0


@data_dir_command(audit, "import", changes=True)
@org_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice([file_format.value for file_format in ImportFormat]),
    help="Format of the files, if their names do not show it.",
)
@click.option("--raw", "is_raw", is_flag=True, help="CSV without protection against formulas.")
@click.option(
    "--partial", "is_partial", is_flag=True, help="Skip refused rows and import the others."
)
@click.option(
    "--files-from",
    "list_path",
    metavar="LIST",
    help="Also import the files named in LIST, one per line; - is standard input.",
)
@click.option(
    "--report",
    "report_path",
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True, dir_okay=False),
    help="Write every refused row to FILE: file, line and error, as NDJSON.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=_WAIT_S,
    show_default=True,
    help="How long the commit waits while another process changes segments.",
)
@click.argument("files", metavar="FILE...", nargs=-1)
async def audit_import(
    context: CommandContext,
    slug: str,
    file_format: str | None,
    list_path: str | None,
    report_path: Path | None,
    wait_s: float,
    files: tuple[str, ...],
    *,
    is_raw: bool,
    is_partial: bool,
) -> CommandResult:
    """Import rows with original timestamps; - is standard input.

    Accepts what audit export writes (ndjson, csv, parquet, also .gz and .zst), and files with fewer
    columns: created_at, event and the event's payload. A file with a refused row is not imported
    at all, and one that was imported before is skipped.
    """
    _check_usage(files, list_path, file_format)
    given = ImportFormat(file_format) if file_format else None
    terms = _Terms(given, is_raw, is_partial, wait_s)
    names = [*files, *(listed_names(list_path) if list_path else ())]
    async with context.services.store.read() as session:
        org = await get_org(session, slug)
    with ExitStack() as stack:
        report = (
            stack.enter_context(new_file(report_path, is_forced=False)) if report_path else None
        )
        refusals = _Refusals(report)
        outcomes = [await _import(context, org, name, terms, refusals) for name in names]
    return CommandResult(
        {"org": slug, "files": [outcome.data() for outcome in outcomes]},
        lines=[line for outcome in outcomes for line in outcome.lines()],
        is_on_stderr=report_path == STANDARD_OUTPUT,
        code=_code([outcome.code for outcome in outcomes]),
    )


def _check_usage(files: Sequence[str], list_path: str | None, file_format: str | None) -> None:
    if not files and not list_path:
        raise click.UsageError("name at least one FILE, or a list with --files-from")
    if [*files, list_path].count(STANDARD_INPUT) > 1:
        raise click.UsageError("standard input can be read only once")
    if STANDARD_INPUT in files and file_format is None:
        raise click.UsageError("standard input has no name that shows its format: use --format")


SHOWN_MAX: Final = 20
"""Refused rows of a file listed in the text output."""

LISTED_MAX: Final = 1_000
"""Refused rows of all files listed in the JSON output; --report has every one."""


@dataclass(slots=True)
class _Outcome:
    """The outcome of importing one file."""

    name: str
    imported: ImportResult | None = None
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
class _Terms:
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


def _code(codes: Sequence[ExitCode]) -> ExitCode:
    """The code of all files: a refusal outweighs temporary failures, as retrying is not enough."""
    return ExitCode.FAILED if ExitCode.FAILED in codes else max(codes, default=ExitCode.DONE)


async def _import(
    context: CommandContext, org: Organisation, name: str, terms: _Terms, refusals: _Refusals
) -> _Outcome:
    """Import one file; a failure does not keep the next file from being imported."""
    services, outcome = context.services, _Outcome(name, is_partial=terms.is_partial)
    try:
        async with open_source(
            name, terms.format, services.lake, services.settings.temp_dir, is_raw=terms.is_raw
        ) as source:
            with lost_lease_as_taken(), byte_progress(f"Importing {printable(name)}") as show:
                watch = ImportWatch(
                    on_progress=lambda done: show(done, source.size),
                    on_refused=lambda refused: refusals.add(outcome, refused),
                )
                job = ImportJob(org, source, context.audit_context, terms.is_partial)
                outcome.imported = await services.importer.take(job, watch, terms.wait_s)
    except (Refusal, UnreadableFile, StoreFault, OSError) as error:
        outcome.error = error
    return outcome


NAMES_MAX: Final = 100_000
_PIECE_BYTES: Final = 1024 * 1024
_PATIENCE_S: Final = 0.2


NOT_A_REGULAR_FILE: Final = Invalid.of("not a regular file: pipe it in, as -")


LIST_INVALID: Final = Invalid.of(
    f"{{value}} must list file names in UTF-8, one per line, at most {NAMES_MAX} of them"
)


def listed_names(path: str) -> Sequence[str]:
    """The file names in `path`, one per line; `-` is not accepted. Raises LIST_INVALID."""
    with click.open_file(path, "rb") as lines:
        names = [line.rstrip(b"\r\n") for line in islice(lines, NAMES_MAX + 1)]
    if len(names) > NAMES_MAX or any(b"\0" in name or name == b"-" for name in names):
        raise LIST_INVALID(value=path)
    try:
        return [name.decode() for name in names if name]
    except UnicodeDecodeError as error:
        raise LIST_INVALID(value=path) from error


@asynccontextmanager
async def open_source(
    name: str, given: ImportFormat | None, lake: Lake, temp_dir: Path, *, is_raw: bool
) -> AsyncIterator[ImportFile]:
    """The file called `name`, to be read more than once; `-` is standard input.

    Raises OSError, NOT_A_REGULAR_FILE, UnreadableFile.
    """
    kind = file_kind(name, given, is_raw=is_raw)
    if name == STANDARD_INPUT:
        # The file has no name, so it disappears with this process, however that ends.
        with tempfile.TemporaryFile(dir=temp_dir) as spooled:
            read = partial(_read_soon, sys.stdin.fileno())
            while (content := await lake.run_in_thread(read)) != b"":
                spooled.write(content or b"")
            spooled.flush()
            yield ImportFile(name, spooled, spooled.tell(), kind)
        return
    with _regular_file(Path(name)) as file:
        yield ImportFile(Path(name).name, file, os.fstat(file.fileno()).st_size, kind)


def _read_soon(descriptor: int) -> bytes | None:
    """Bytes that have arrived, b"" at the end, None if none arrived for _PATIENCE_S.

    Ctrl-C ends the process only if no thread is blocked in a read that may never return.
    """
    is_ready, _, _ = select.select([descriptor], [], [], _PATIENCE_S)
    return os.read(descriptor, _PIECE_BYTES) if is_ready else None


@contextmanager
def _regular_file(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():
        raise NOT_A_REGULAR_FILE  # opening a pipe would block until it has a writer
    with path.open("rb") as file:
        yield file
