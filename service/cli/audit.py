"""`countersign audit`: query and export the log, seal and merge its segments."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from analytics.export.compression import Compression
from analytics.export.writers import ExportFormat, FileForm
from analytics.model.filters import FILTER_COLUMNS, Order, parse_query
from analytics.model.instants import format_us
from analytics.query.executor import ScanReport
from analytics.storage.segment_metadata import Segment
from service.audit.api_schemas import PageQuery
from service.audit.exports import Export, Exporter
from service.audit.lease import LeaseLost, LeaseTaken
from service.audit.query_service import LIMIT_MAX, parse_page_request
from service.cli.context import Answer, CommandContext, command, org_option, table
from service.cli.files import STANDARD_OUTPUT, new_file
from service.cli.progress import row_progress
from service.cli.query_plan import plan_json, plan_table
from service.orgs.repository import get_org

_SHOWN = ["created_at", "event", "decision", "packageName", "version", "actor", "subject"]


@click.group()
def audit() -> None:
    """The audit log: every install, block, admin change and sign-in."""


def _parameter_help() -> dict[str, str]:
    """The API's description of each query parameter, with an example."""
    _, components = msgspec.json.schema_components([PageQuery])
    return {
        name: " ".join(
            [
                schema["description"].replace("`", ""),
                *(f"Example: {_first(example)}" for example in schema.get("examples", [])[:1]),
            ]
        )
        for name, schema in components[PageQuery.__name__]["properties"].items()
    }


def _first(example: Any) -> Any:  # noqa: ANN401 - a JSON value
    return example[0] if isinstance(example, list) else example


_HELP = _parameter_help()


def _with_filters(function: Any) -> Any:  # noqa: ANN401 - click decorates what it decorates
    """Give a command the API's filters and order as options."""
    options = [
        click.option("--since", metavar="INSTANT", help=_HELP["since"]),
        click.option("--until", metavar="INSTANT", help=_HELP["until"]),
        *(
            click.option(
                f"--{name.replace('_', '-')}",
                name,
                metavar="VALUE",
                multiple=True,
                help=_HELP[name],
            )
            for name in FILTER_COLUMNS
        ),
        click.option(
            "--order", type=click.Choice([order.value for order in Order]), help=_HELP["order"]
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _as_parameters(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Options as the API's query parameters."""
    return {
        name: [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        for name, value in given.items()
        if value not in (None, ())
    }


@command(audit, "query")
@org_option
@_with_filters
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), help=_HELP["limit"])
@click.option("--cursor", help=_HELP["cursor"])
@click.option(
    "--explain", is_flag=True, help="Show the query plan, with estimates, instead of the rows."
)
async def audit_query(
    context: CommandContext,
    slug: str,
    *,
    explain: bool,
    **given: Any,  # noqa: ANN401 - click's own values
) -> Answer:
    """Print a page of an organisation's audit log, newest first.

    Rows must match all given filters. Repeating a filter means OR, and ! before a value negates
    it.
    """
    reports: list[ScanReport] = []
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    wanted = parse_page_request(_as_parameters(given))
    page = await services.audit_queries.page(org, wanted, services.clock(), reports=reports)
    if explain:
        return Answer({"org": slug, "plan": plan_json(reports)}, table=plan_table(reports))
    entries = [json.loads(entry) for entry in page.entries]
    floor = page.retention_floor
    return Answer(
        {
            "org": slug,
            "entries": entries,
            "next_cursor": page.next_cursor,
            "retention_floor": None if floor is None else format_us(floor),
        },
        lines=[f"More: --cursor {page.next_cursor}"] if page.next_cursor else [],
        table=table(
            f"Audit log of {slug}, times in UTC",
            _SHOWN,
            [[entry[column] for column in _SHOWN] for entry in entries],
        ),
    )


@command(audit, "export")
@org_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice([file_format.value for file_format in ExportFormat]),
    required=True,
    help="Format of the file.",
)
@click.option(
    "--compress",
    type=click.Choice([compression.value for compression in Compression]),
    help="Compress the file; Parquet is compressed already.",
)
@_with_filters
@click.option("--raw", "is_raw", is_flag=True, help="CSV without protection against formulas.")
@click.option("--force", "is_forced", is_flag=True, help="Replace FILE if it exists.")
@click.argument(
    "path", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True, dir_okay=False)
)
async def audit_export(
    context: CommandContext,
    slug: str,
    file_format: str,
    compress: str | None,
    path: Path,
    *,
    is_raw: bool,
    is_forced: bool,
    **given: Any,  # noqa: ANN401
) -> Answer:
    """Export rows to FILE, all or none; - is standard output.

    `audit exports receipt` prints the receipt to keep beside it, `audit verify-export` compares
    the two.
    """
    if file_format == ExportFormat.PARQUET and compress:
        raise click.UsageError("--compress cannot be used with parquet: it is compressed already")
    form = FileForm(
        format=ExportFormat(file_format),
        compression=Compression(compress) if compress else None,
        is_raw=is_raw,
    )
    query = parse_query(_as_parameters(given))
    services = context.services
    async with services.store.read() as session:
        org = await get_org(session, slug)
    with new_file(path, is_forced=is_forced) as file:
        export = await services.exporter.prepare(
            org, query, form, context.audit_context, services.clock()
        )
        said = _scope(export)
        if sys.stderr.isatty():
            click.echo(f"Exporting {export.rows} rows of {slug}: {said}", err=True)
        await _write(file, services.exporter, export)
    left = export.progress.left
    since, until = export.window
    return Answer(
        {
            "path": str(path),
            "export_id": export.export_id,
            "format": file_format,
            "filters": query.given,
            "since": _instant(since),
            "until": _instant(until),
            "retention_floor": _instant(export.log.floor),
            "rows": left.rows,
            "bytes": left.size,
            "sha256": left.sha256,
        },
        [
            f"Exported {left.rows} rows to {path}: {left.size} bytes, SHA-256 {left.sha256}.",
            f"Rows: {said}",
            f"Export {export.export_id}; its receipt:"
            f" countersign audit exports receipt --org {slug} {export.export_id}",
        ],
        is_on_stderr=path == STANDARD_OUTPUT,
    )


def _scope(export: Export) -> str:
    """Which rows an export has, in words: its filters, window and retention floor."""
    filters = " ".join(
        f"{name}={text}"
        for name, texts in export.query.given.items()
        if name in FILTER_COLUMNS
        for text in texts
    )
    since, until = (_instant(at) for at in export.window)
    floor = _instant(export.log.floor)
    limit = "no retention limit" if floor is None else f"none before retention floor {floor}"
    return f"{filters or 'no filters'}; from {since or 'the first'} to {until or 'now'}; {limit}"


def _instant(at: datetime | None) -> str | None:
    return None if at is None else format_us(at)


async def _write(file: BinaryIO, exporter: Exporter, export: Export) -> None:
    with row_progress(f"Exporting {export.log.org.slug}") as show:
        async for content in await exporter.stream(export):
            file.write(content)
            show(export.progress.left.rows, export.rows)
        show(export.rows, export.rows)


@command(audit, "seal")
async def audit_seal(context: CommandContext) -> Answer:
    """Move every journal row into segments now.

    The service does this automatically when it is due.
    """
    with lost_lease_as_taken():
        segments = await context.services.sealer.seal_due(everything=True)
    return _made("Sealed", segments)


@command(audit, "compact")
async def audit_compact(context: CommandContext) -> Answer:
    """Merge the segments of each past day into one now.

    The service does this automatically when a day has had no changes for a while.
    """
    with lost_lease_as_taken():
        segments = await context.services.compactor.compact_due(everything=True)
    return _made("Merged", segments)


@contextlib.contextmanager
def lost_lease_as_taken() -> Iterator[None]:
    """Raise LeaseTaken if the lease is lost midway: nothing is changed from then on either."""
    try:
        yield
    except LeaseLost as error:
        raise LeaseTaken from error


def _made(done: str, segments: Sequence[Segment]) -> Answer:
    rows = sum(segment.rows for segment in segments)
    return Answer(
        {"segments": [segment.segment_id for segment in segments], "rows": rows},
        [f"{done} {rows} rows into {len(segments)} segments."],
    )
