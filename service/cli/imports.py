"""`countersign audit import`: import rows with their original timestamps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from analytics.imports.chunks import ImportFormat
from service.cli.answers import Answer
from service.cli.audit import audit
from service.cli.context import CommandContext, command, org_option
from service.cli.files import STANDARD_INPUT

_WAIT_S: Final = 30.0


@command(audit, "import", changes=True)
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
) -> Answer:
    """Import rows with original timestamps; - is standard input.

    Accepts what audit export writes (ndjson, csv, parquet, also .gz and .zst), and files with fewer
    columns: created_at, event and the event's payload. A file with a refused row is not imported
    at all, and one that was imported before is skipped.
    """
    _check_usage(files, list_path, file_format)
    # Imported here: the importer needs the query engine, which completion does not.
    from service.cli.import_files import Terms, import_files

    given = ImportFormat(file_format) if file_format else None
    terms = Terms(given, is_raw, is_partial, wait_s)
    return await import_files(context, slug, [*files], list_path, report_path, terms)


def _check_usage(files: Sequence[str], list_path: str | None, file_format: str | None) -> None:
    if not files and not list_path:
        raise click.UsageError("name at least one FILE, or a list with --files-from")
    if [*files, list_path].count(STANDARD_INPUT) > 1:
        raise click.UsageError("standard input can be read only once")
    if STANDARD_INPUT in files and file_format is None:
        raise click.UsageError("standard input has no name that shows its format: use --format")
