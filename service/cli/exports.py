"""`countersign audit exports` and `verify-export`: what was exported, and whether a file is it."""

import asyncio
import json
from pathlib import Path
from typing import Final

import click
import msgspec

from analytics.evidence.receipts import RECEIPT_SUFFIX
from service.audit.export_entries import LIMIT_DEFAULT, LIMIT_MAX
from service.audit.export_receipts import (
    Receipt,
    compare_file,
    read_receipt,
    receipt_text,
)
from service.cli.audit import audit
from service.cli.client import Client, drop_none, org_path
from service.cli.commands import CURSOR, CommandPlace, api_command, ask, current_run, declare
from service.cli.output import CommandResult, Table, more_lines
from service.cli.target import choose_target
from service.core.errors import Invalid
from service.core.exit_codes import ExitCode

_COLUMNS: Final = {
    "id": "id",
    "started": "started_at",
    "actor": "actor",
    "format": "format",
    "rows": "rows",
    "bytes": "bytes",
    "state": "state",
}
"""The columns of the list, and the members of an export that they show."""

_WORDS: Final = {"bytes": "size in bytes", "sha256": "SHA-256", "rows": "number of rows"}


@audit.group("exports")
def exports() -> None:
    """Exports: who exported which rows, and receipts."""


@api_command(exports, "list")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="Exports on a page.",
)
@CURSOR
async def exports_list(client: Client, slug: str, limit: int, cursor: str | None) -> CommandResult:
    """List an organisation's exports, newest first."""
    page = await client.get(
        org_path(slug, "exports"), drop_none(limit=limit, cursor=cursor or None)
    )
    title = f"Exports of {slug}{client.at_place}, times in UTC"
    return CommandResult(
        page,
        lines=more_lines(page),
        table=Table.of(title, page["exports"], _COLUMNS, ["started"]),
    )


@api_command(exports, "show")
@click.argument("export_id")
async def exports_show(client: Client, slug: str, export_id: str) -> CommandResult:
    """Show one export: its filters, its window, and what was sent."""
    shown = await client.get(org_path(slug, "exports", export_id))
    width = max(map(len, shown))
    return CommandResult(
        shown, [f"{name:{width}}  {_cell(value)}" for name, value in shown.items()]
    )


@api_command(exports, "receipt")
@click.argument("export_id")
async def exports_receipt(client: Client, slug: str, export_id: str) -> CommandResult:
    """Print the receipt of a finished export, to keep beside its file."""
    receipt = await client.get(org_path(slug, "exports", export_id, "receipt"))
    text = receipt_text(msgspec.convert(receipt, Receipt))
    # The output stays JSON: characters that a terminal could interpret are escaped as in JSON.
    lines = "".join(
        c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text.decode()
    )
    return CommandResult(receipt, lines.splitlines())


@declare(audit, "verify-export", place=CommandPlace.LOCAL)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--receipt",
    "receipt_path",
    metavar="RECEIPT",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The receipt; default: FILE{RECEIPT_SUFFIX}. Needs no data dir.",
)
@click.option("--export", "export_id", metavar="ID", help="Compare with the stored export instead.")
@click.option("--org", "slug", metavar="SLUG", help="The organisation of --export.")
def verify_export(
    path: Path, receipt_path: Path | None, export_id: str | None, slug: str | None
) -> CommandResult:
    """Compare FILE with the receipt of its export.

    Compared are the size, the SHA-256 and the number of rows. Exit code 0 means that it is the
    exported file, byte for byte; 1 that it differs.
    """
    if export_id is not None:
        if receipt_path is not None:
            raise click.UsageError("--receipt and --export exclude each other")
        if slug is None:
            raise click.UsageError("--export needs --org")
        run = current_run()
        run.target = choose_target(None, is_local=run.is_local)
        options = {"slug": slug, "export_id": export_id, "path": path}
        return asyncio.run(ask(_verify_stored, options))
    beside = path.with_name(path.name + RECEIPT_SUFFIX)
    if receipt_path is None and not beside.exists():
        raise Invalid(f"there is no {beside}: name the receipt (--receipt) or --export")
    return _compared(path, read_receipt(receipt_path or beside))


async def _verify_stored(client: Client, slug: str, export_id: str, path: Path) -> CommandResult:
    receipt = await client.get(org_path(slug, "exports", export_id, "receipt"))
    return _compared(path, msgspec.convert(receipt, Receipt))


def _compared(path: Path, receipt: Receipt) -> CommandResult:
    different = compare_file(path, receipt)
    data = {
        "path": str(path),
        "export_id": receipt.export_id,
        "is_the_exported_file": not different,
        "differences": [
            {"what": difference.what, "expected": difference.expected, "found": difference.found}
            for difference in different
        ],
    }
    if not different:
        facts = f"{receipt.rows} rows, {receipt.bytes} bytes, SHA-256 {receipt.sha256}"
        return CommandResult(data, [f"{path} is the file of export {receipt.export_id}: {facts}."])
    lines = [f"{path} is NOT the file of export {receipt.export_id}:"]
    for difference in different:
        found = (
            "cannot be told: the file is damaged"
            if difference.found is None
            else f"is {difference.found}"
        )
        lines.append(f"  {_WORDS[difference.what]} {found}, the receipt says {difference.expected}")
    return CommandResult(data, lines, code=ExitCode.FAILED)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        named = (f"{name}={text}" for name, values in value.items() for text in values)
        return " ".join(named) or "–"
    return "–" if value is None else str(value)
