"""`countersign blocklist`: advisories that block installs in every organisation."""

from pathlib import Path
from typing import Any, Final

import click

from analytics.model.instants import format_ms
from service.cli.context import EXIT_INCOMPLETE, Answer, CommandContext, command
from service.cli.progress import byte_progress
from service.cli.root import root
from service.cli.tables import Table
from service.policy.blocklist import BlocklistImporter, ImportResult
from service.policy.repository import list_imports
from service.store.tables import BlocklistImport

_MALICIOUS: Final = "MAL-*"
_LISTED: Final = 10


@root.group("blocklist")
def blocklist() -> None:
    """The blocklist: known malicious releases, for all organisations."""


@command(blocklist, "import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--ids",
    multiple=True,
    default=(_MALICIOUS,),
    show_default=True,
    metavar="GLOB",
    help="Import the records with such ids; can be repeated.",
)
async def blocklist_import(context: CommandContext, file: Path, ids: tuple[str, ...]) -> Answer:
    """Replace the blocklist by the records in FILE, OSV's bulk format (a zip).

    Withdrawn records are left out. The list in force stays in force until the new one is complete.
    A record that cannot be read is left out and named, and the exit code is 4 then.
    """
    importer = BlocklistImporter(context.services.store)
    with file.open("rb") as opened, byte_progress(f"Importing {file.name}") as show:
        result = await importer.import_file(opened, file.name, ids, context.audit_context, show)
    return Answer(
        _data(result),
        _lines(result),
        code=EXIT_INCOMPLETE if result.counts.unreadable else 0,
    )


@command(blocklist, "status")
async def blocklist_status(context: CommandContext) -> Answer:
    """Show the list in force and the last imports."""
    async with context.services.store.read() as session:
        imports = await list_imports(session, _LISTED)
    current = next((entry for entry in imports if entry.switched_at is not None), None)
    rows = [_import_data(entry, is_current=entry is current) for entry in imports]
    columns = ["state", "imported", "file", "ids", "records", "advisories", "unreadable"]
    return Answer(
        {"current": rows[imports.index(current)] if current else None, "imports": rows},
        [] if imports else ["No blocklist was imported: `countersign blocklist import FILE.zip`."],
        Table("Imports", columns, [_cells(row) for row in rows], ["imported"]) if imports else None,
    )


def _data(result: ImportResult) -> dict[str, Any]:
    counts = result.counts
    return {
        "generation": result.generation,
        "sha256": result.sha256,
        "is_unchanged": result.is_unchanged,
        "records": counts.records,
        "advisories": counts.advisories,
        "advisories_before": result.advisories_before,
        "withdrawn": counts.withdrawn,
        "other": counts.other,
        "unreadable": counts.unreadable,
        "unreadable_records": [{"name": name, "error": error} for name, error in counts.examples],
        "seconds": round(result.seconds, 2),
    }


def _lines(result: ImportResult) -> list[str]:
    counts = result.counts
    if result.is_unchanged:
        return [f"Nothing to change: this file is in force ({counts.advisories} advisories)."]
    lines = [
        f"{counts.advisories} advisories of {counts.records} records in force"
        f" (before: {result.advisories_before}), in {result.seconds:.1f} s.",
        f"Left out: {counts.withdrawn} withdrawn, {counts.other} other records,"
        f" {counts.unreadable} unreadable.",
    ]
    lines += [f"  {name}: {error}" for name, error in counts.examples]
    if counts.unreadable > len(counts.examples):
        lines.append(f"  and {counts.unreadable - len(counts.examples)} more")
    return lines


def _import_data(entry: BlocklistImport, *, is_current: bool) -> dict[str, Any]:
    state = "in force" if is_current else "replaced" if entry.switched_at else "loading"
    return {
        "generation": entry.generation,
        "state": state,
        "imported_at": format_ms(entry.switched_at or entry.started_at),
        "imported_by": entry.imported_by,
        "file": entry.source,
        "sha256": entry.sha256,
        "ids": entry.ids,
        "records": entry.records,
        "advisories": entry.advisories,
        "withdrawn": entry.withdrawn,
        "unreadable": entry.unreadable,
    }


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        row["state"],
        row["imported_at"],
        row["file"],
        " ".join(row["ids"]),
        row["records"],
        row["advisories"],
        row["unreadable"],
    ]
