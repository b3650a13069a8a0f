"""`countersign audit`: query, follow, show and export the log."""

import asyncio
import hashlib
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from analytics.export.formats import ExportFormat
from analytics.model.filters import FILTER_COLUMNS, parse_query
from analytics.model.schema import FILTER_PARAMETERS
from service.cli.client import Client, ExportScope, drop_none, org_path
from service.cli.commands import api_command, current_run
from service.cli.files import STANDARD_OUTPUT, WRITTEN_PATH, force_option, new_file
from service.cli.output import (
    CommandResult,
    Output,
    Table,
    has_colour,
    is_terminal,
    one_line,
    padded,
    printable,
)
from service.cli.progress import row_progress
from service.cli.root import root
from service.cli.times import INSTANT, relative_time
from service.core.errors import Refusal

LIMIT_MAX: Final = 1_000
RowParameters = Mapping[str, list[str]]
_COMPRESSIONS: Final = ("gzip", "zstd")


@root.group("audit")
def audit() -> None:
    """The audit log: every install, block, admin change and sign-in."""


def with_filters(function: Any) -> Any:  # noqa: ANN401 - click decorates what it decorates
    """Give a command the API's filters and order as options."""
    options = [
        click.option(
            "--since",
            metavar="INSTANT",
            type=INSTANT,
            help="From this instant on; a bare date is its midnight, UTC; 24h is that long ago."
            " Example: 2026-01-31T08:00:00Z",
        ),
        click.option(
            "--until",
            metavar="INSTANT",
            type=INSTANT,
            help="Before this instant; a bare date is the end of that day, UTC; 7d is that long"
            " ago. Example: 2026-02-01",
        ),
        *(
            click.option(
                f"--{parameter.name.replace('_', '-')}",
                parameter.name,
                metavar="VALUE",
                multiple=True,
                help=f"{parameter.summary.replace('`', '')} Example: {parameter.example}",
                shell_complete=partial(_complete, parameter.known or ()),
            )
            for parameter in FILTER_PARAMETERS
        ),
        click.option(
            "--order",
            type=click.Choice(["desc", "asc"]),
            help="Newest first (desc, the default), or oldest first.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _complete(
    known: Sequence[str], ctx: click.Context, option: click.Parameter, incomplete: str
) -> list[str]:
    """The values of a filter that begin with what was typed, negated if that begins with !."""
    sign = "!" if incomplete.startswith("!") else ""
    return [f"{sign}{value}" for value in known if f"{sign}{value}".startswith(incomplete)]


def as_parameters(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Options as the API's query parameters."""
    return {
        name: [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
        for name, value in given.items()
        if value not in (None, ())
    }


_SEARCH: Final = click.argument("search", required=False)
"""The search of the audit page, in one argument: `'event-stream@3.3.6 -decision:blocked'`."""

_NOT_LOOKED_UP: Final = frozenset({"limit", "cursor", "order"})


@api_command(audit, "query")
@_SEARCH
@with_filters
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), help="Rows on a page; default 100.")
@click.option(
    "--cursor", help="The cursor below the page before; filters and order must be the same."
)
@click.option(
    "--follow", "is_followed", is_flag=True, help="Then print new rows as they are accepted."
)
@click.option(
    "--explain", is_flag=True, help="Show the query plan, with estimates, instead of the rows."
)
async def audit_query(
    client: Client,
    /,  # `client` is a filter, too
    slug: str,
    search: str | None,
    *,
    explain: bool,
    is_followed: bool,
    **given: Any,  # noqa: ANN401 - click's own values
) -> CommandResult:
    """Print a page of an organisation's audit log, newest first.

    SEARCH is what the search of the audit page takes, such as event-stream@3.3.6 or a key's name.
    Rows must match it and all given filters. Repeating a filter means OR, and ! before a value
    negates it. With --follow, the last 10 rows (--limit) are printed, oldest first, then each new
    one until Ctrl-C; with --json one object a line.
    """
    parameters = as_parameters(given | {"q": search})
    await _tell_reading(client, slug, parameters)
    if is_followed:
        if explain or {"until", "order", "cursor"} & parameters.keys():
            raise click.UsageError("--follow goes with filters, --since and --limit only")
        await follow(client, slug, parameters, current_run().output)
    if explain:
        return await _plan_answer(client, slug, parameters)
    page = await client.get(_path(slug), parameters)
    lines = _next_page(page, parameters)
    if not page["entries"] and "cursor" not in parameters:
        await _tell_unknown(client, slug, parameters)
    return CommandResult(page, lines=lines, table=page_table(page, slug, client.at_place))


async def _tell_reading(client: Client, slug: str, parameters: RowParameters) -> None:
    """Say on standard error what was read as something else than it says."""
    if "q" not in parameters:
        return
    read = await client.get(_path(slug, "reading"), {"q": parameters["q"]})
    for word in read["words"]:
        if not word["as_typed"]:
            line = f"{word['text']} was read as {_meaning(word['filters'])}"
            if word["all_versions"]:
                line += f"; all versions: {_meaning(word['all_versions'])}"
            line += f"; exactly this text: {word['exact']}"
            click.echo(f"countersign: {printable(line)}", err=True)


def _meaning(filters: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} {' or '.join(values)}" for name, values in filters.items())


async def _tell_unknown(client: Client, slug: str, parameters: RowParameters) -> None:
    """Say on standard error which values no row has: an empty page is no all-clear."""
    asked = {name: each for name, each in parameters.items() if name not in _NOT_LOOKED_UP}
    for unknown in (await client.get(_path(slug, "unknown-values"), asked))["unknown"]:
        hint = f"; the nearest is {unknown['nearest']}" if unknown["nearest"] else ""
        elsewhere = [*unknown["also_in"], *(f"package of {name}" for name in unknown["ecosystems"])]
        others = "".join(f"; it occurs as {name}" for name in elsewhere)
        line = f"no row of {slug} has {unknown['parameter']} {unknown['value']}{hint}{others}"
        if not unknown["understood"]:
            line = f"{unknown['value']} was not understood: it is no name of a package{hint}"
        click.echo(f"countersign: {printable(line)}", err=True)


def _next_page(page: dict[str, Any], parameters: RowParameters) -> list[str]:
    """How to ask for the next page: an age such as 24h must be repeated as its instant."""
    if page["next_cursor"] is None:
        return []
    bounds = [
        f"--{name} {parameters[name][0]} " for name in ("since", "until") if name in parameters
    ]
    return [f"More: {''.join(bounds)}--cursor {shlex.quote(page['next_cursor'])}"]


@api_command(audit, "list")
@_SEARCH
@with_filters
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), help="Rows at most; default 100.")
async def audit_list(
    client: Client,
    /,  # `client` is a filter, too
    slug: str,
    search: str | None,
    **given: Any,  # noqa: ANN401 - click's own values
) -> CommandResult:
    """Print the newest rows: `audit query` without its rarer options."""
    return await audit_query(
        client, slug, search, explain=False, is_followed=False, cursor=None, **given
    )


@api_command(audit, "show")
@click.argument("audit_id", metavar="ID")
async def audit_show(client: Client, slug: str, audit_id: str) -> CommandResult:
    """Print one row, with everything that it says."""
    entry = await client.get(_path(slug, audit_id))
    return CommandResult(entry, list(entry_lines(entry)))


@api_command(audit, "export")
@click.option(
    "--format",
    "file_format",
    type=click.Choice([each.value for each in ExportFormat]),
    required=True,
    help="Format of the file.",
)
@click.option(
    "--compress",
    type=click.Choice(_COMPRESSIONS),
    help="Compress the file; Parquet is compressed already.",
)
@with_filters
@click.option(
    "--search", "q", help="A search, as `audit query` takes it: event-stream@3.3.6, a key's name."
)
@click.option("--raw", "is_raw", is_flag=True, help="CSV without protection against formulas.")
@force_option
@click.argument("path", metavar="FILE", type=WRITTEN_PATH)
async def audit_export(
    client: Client,
    /,  # `client` is a filter, too
    slug: str,
    file_format: str,
    compress: str | None,
    path: Path,
    *,
    is_raw: bool,
    is_forced: bool,
    **filters: Any,  # noqa: ANN401
) -> CommandResult:
    """Export rows to FILE, all or none; - is standard output.

    `audit exports receipt` prints the receipt to keep beside it, `audit verify-export` compares
    the two.
    """
    if not ExportFormat(file_format).facts.is_text and compress:
        raise click.UsageError(
            f"--compress cannot be used with {file_format}: it is compressed already"
        )
    parameters = as_parameters(filters)
    # A wrong filter is refused before FILE is opened.
    parse_query({name: each for name, each in parameters.items() if name != "q"})
    form = drop_none(format=file_format, compress=compress, raw="1" if is_raw else None)
    digest, size = hashlib.sha256(), 0
    with new_file(path, is_forced=is_forced) as file, row_progress(f"Exporting {slug}") as show:
        async with client.download(_path(slug, "export"), parameters | form) as download:
            _announce(slug, parameters, download.scope)
            show(0, download.scope.rows)
            async for chunk in download.chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        show(download.scope.rows, download.scope.rows)
    scope, sha256 = download.scope, digest.hexdigest()
    return CommandResult(
        {
            "path": str(path),
            "export_id": scope.export_id,
            "format": file_format,
            "filters": parameters,
            "since": scope.since,
            "until": scope.until,
            "retention_floor": scope.retention_floor,
            "rows": scope.rows,
            "lost_rows": scope.lost_rows,
            "bytes": size,
            "sha256": sha256,
        },
        [
            f"Exported {scope.rows} rows to {path}: {size} bytes, SHA-256 {sha256}.",
            *([f"LOST: {scope.lost_rows} rows of these days."] if scope.lost_rows else ()),
            f"Rows: {_in_words(parameters, scope)}",
            f"Export {scope.export_id}; its receipt:"
            f" countersign audit exports receipt --org {slug} {shlex.quote(str(scope.export_id))}",
        ],
        is_on_stderr=path == STANDARD_OUTPUT,
    )


def _announce(slug: str, parameters: RowParameters, scope: ExportScope) -> None:
    """Say which rows are coming, to a person who waits for them."""
    if sys.stderr.isatty():
        words = _in_words(parameters, scope)
        click.echo(printable(f"Exporting {scope.rows} rows of {slug}: {words}"), err=True)


def _in_words(parameters: RowParameters, scope: ExportScope) -> str:
    """Which rows an export has: its filters, window and retention floor."""
    filters = " ".join(
        f"{name}={text}"
        for name, texts in parameters.items()
        if name in FILTER_COLUMNS or name == "q"
        for text in texts
    )
    floor = scope.retention_floor
    limit = "no retention limit" if floor is None else f"none before retention floor {floor}"
    return (
        f"{filters or 'no filters'}; from {scope.since or 'the first'} to {scope.until or 'now'};"
        f" {limit}"
    )


POLL_S: Final = 2.0
FIRST_ROWS: Final = 10
_AT_ONCE: Final = 1_000
_RETRY_MAX_S: Final = 30.0


async def follow(client: Client, slug: str, parameters: RowParameters, output: Output) -> NoReturn:
    """Print the last rows of the query, then new ones until the process is interrupted.

    A failure that may pass, such as a server that restarts, is noted on standard error.
    """
    limit = parameters.get("limit", [str(FIRST_ROWS)])
    filters = {name: values for name, values in parameters.items() if name != "limit"}
    # First the place to continue from: what is accepted meanwhile is on the page and follows too.
    last = (await client.get(_path(slug, "accepted"), filters))["last"]
    page = await client.get(_path(slug), filters | {"limit": limit})
    shown = {entry["id"] for entry in page["entries"]}
    for entry in reversed(page["entries"]):
        _print(entry, output)
    pause_s = POLL_S
    while True:
        try:
            asked = filters | {"after": [last], "limit": [str(_AT_ONCE)]}
            found = await client.get(_path(slug, "accepted"), asked)
        except Refusal as refusal:
            if not refusal.is_temporary:
                raise
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
            click.echo(f"countersign: {one_line(refusal)}; next try in {pause_s:g} s", err=True)
            await asyncio.sleep(pause_s)
            continue
        for entry in found["entries"]:
            if entry["id"] not in shown:
                _print(entry, output)
        last, pause_s = found["last"], POLL_S
        if len(found["entries"]) < _AT_ONCE:
            await asyncio.sleep(pause_s)


def _path(slug: str, *parts: str) -> str:
    return org_path(slug, "audit", *parts)


def _print(entry: dict[str, Any], output: Output) -> None:
    if output.as_json:
        click.echo(json.dumps(entry))
        return
    now = datetime.now(UTC) if is_terminal() and not output.is_exact else None
    click.echo(row_line(entry, now))


_PLAN_COLUMNS: Final = {
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


async def _plan_answer(client: Client, slug: str, parameters: RowParameters) -> CommandResult:
    """The plan of a page's query, with one object per scan in the order in which they ran."""
    answered = await client.get(_path(slug, "plan"), parameters)
    return CommandResult(answered, table=Table.of("Plan", answered["plan"], _PLAN_COLUMNS))


_COLUMNS: Final = ("created_at", "decision", "event", "package", "actor", "subject", "id")
_BLOCKED: Final = "BLOCKED"
_LABEL_WIDTH: Final = 17


def page_table(page: dict[str, Any], slug: str, at_place: str) -> Table:
    """A page of rows. `at_place` names the server they come from, see `Client.at_place`."""
    rows = [entry | {"package": package_of(entry)} for entry in page["entries"]]
    return Table.of(f"Audit log of {slug}{at_place}, times in UTC", rows, _COLUMNS, ["created_at"])


def package_of(entry: dict[str, Any]) -> str | None:
    """The package as people write it, with its version."""
    name, version = entry["packageName"], entry["version"]
    return f"{name}@{version}" if name and version else name


def row_line(entry: dict[str, Any], now: datetime | None) -> str:
    """One row on one line, for a list that grows. With `now`, its instant is relative to it."""
    at = printable(entry["created_at"])
    decision = padded(printable(entry["decision"]), len(_BLOCKED))
    if decision == _BLOCKED and has_colour():
        decision = click.style(decision, fg="red", bold=True)
    parts = [at if now is None else padded(relative_time(at, now), 11), decision]
    names = [package_of(entry), entry["actor"], entry["subject"], entry["id"]]
    parts += [printable(entry["event"]), *(printable(name) for name in names if name is not None)]
    return "  ".join(parts)


def entry_lines(entry: dict[str, Any]) -> Iterator[str]:
    """Everything a row says; what it does not have is left out."""
    for name, value in entry.items():
        if value is None or name == "payload":
            continue
        yield f"{padded(name, _LABEL_WIDTH)}{printable(value)}"
    if entry["payload"]:
        yield "payload"
        yield from _nested(entry["payload"], "  ")


def _nested(payload: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in payload.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{printable(name)}"
            yield from _nested(value, f"{indent}  ")
            continue
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{padded(indent + printable(name), _LABEL_WIDTH)} {printable(shown)}"
