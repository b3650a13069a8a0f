"""`countersign audit sql`: a question in SQL."""

import sys
from pathlib import Path
from typing import Final

import click

from analytics.query.sql_job import SQL_CHARS_MAX
from service.cli.audit import audit
from service.cli.client import Client, org_path
from service.cli.commands import api_command
from service.cli.files import STANDARD_INPUT, STANDARD_OUTPUT, new_file, output_options
from service.cli.output import CommandResult, Table

_MORE: Final = "These are the first rows only: --format writes a file of all."


@api_command(audit, "sql")
@click.argument("statement", metavar="SQL", default=STANDARD_INPUT)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    help="Write a file of all rows: an export.",
)
@click.option("--raw", "is_raw", is_flag=True, help="CSV without protection against formulas.")
@output_options("The file of --format; default: standard output.")
async def audit_sql(
    client: Client,
    slug: str,
    statement: str,
    file_format: str | None,
    path: Path,
    *,
    is_raw: bool,
    is_forced: bool,
) -> CommandResult:
    """Answer a question in SQL over an organisation's audit log.

    SQL is one SELECT of DuckDB over the view `audit`; - (default) reads it from standard input.

    \b
    Example:
      countersign audit sql 'SELECT event, count(*) FROM audit GROUP BY event'
    """  # noqa: D301 - click reads the backspace
    sql = sys.stdin.read(SQL_CHARS_MAX + 1) if statement == STANDARD_INPUT else statement
    place, body = org_path(slug, "audit", "sql"), {"sql": sql}
    if file_format is None:
        answer = await client.post(place, body)
        names = [column["name"] for column in answer["columns"]]
        table = Table(f"Rows{client.at_place}", names, answer["rows"])
        return CommandResult(answer, [_MORE] if answer["truncated"] else [], table)
    asked = body | {"format": file_format, "raw": is_raw}
    with new_file(path, is_forced=is_forced) as file:
        async with client.download(place, {}, asked) as download:
            async for chunk in download.chunks:
                file.write(chunk)
    rows, export_id = download.scope.rows, download.scope.export_id
    return CommandResult(
        {"path": str(path), "export_id": export_id, "rows": rows},
        [f"Exported {rows} rows to {path}: export {export_id}."],
        is_on_stderr=path == STANDARD_OUTPUT,
    )
