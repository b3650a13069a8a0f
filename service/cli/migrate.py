"""`countersign migrate`: from SQLite to PostgreSQL."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.commands import CommandPlace, declare
from service.cli.output import CommandResult
from service.cli.progress import row_progress
from service.cli.root import root
from service.core.settings import Settings, load_settings

if TYPE_CHECKING:
    from service.store.database_copy import CopiedTable


@declare(root, "migrate", place=CommandPlace.DATA_DIR, changes=True)
@click.option(
    "--from",
    "source",
    metavar="URL",
    help="The SQLite database, sqlite:///PATH; default: the data dir's.",
)
@click.option(
    "--to",
    "target",
    metavar="URL",
    help="An empty PostgreSQL database; default: COUNTERSIGN_DATABASE_URL, which hides its password"
    " from other users of this machine.",
)
def migrate(source: str | None, target: str | None) -> CommandResult:
    """Copy the database from SQLite to PostgreSQL.

    The service must be stopped. Every row of every table is copied, and compared on both sides;
    only then can a service start on the new database, and none can on the old one, which is kept. A
    copy that was interrupted leaves the new database empty: give the command again.

    Segments are not copied: they stay in the data dir.
    """
    return asyncio.run(_migrate(load_settings(), source, target))


async def _migrate(settings: Settings, source: str | None, target: str | None) -> CommandResult:
    from service.app.logs import configure_logs
    from service.store.database_copy import copy_all, open_source, open_target

    configure_logs("warning")
    file, reading = open_source(settings, source)
    writing = open_target(settings, target)
    try:
        tables = await copy_all(reading, writing, row_progress)
    finally:
        await reading.dispose()
        await writing.dispose()
    url = writing.writer.url.render_as_string(hide_password=True)
    return _answer(settings, tables, file, url)


def _answer(settings: Settings, tables: "list[CopiedTable]", file: Path, url: str) -> CommandResult:
    rows = sum(table.rows for table in tables)
    data: dict[str, Any] = {
        "from": str(file),
        "to": url,
        "rows": rows,
        "tables": [
            {"table": table.name, "rows": table.rows, "sha256": table.sha256} for table in tables
        ],
        "segments": str(settings.audit_dir),
    }
    lines = [
        f"Copied {rows} rows of {len(tables)} tables, equal on both sides: {file} to {url}.",
        f"Segments stay in {settings.audit_dir}.",
        "Start the service with COUNTERSIGN_DATABASE_URL set to the new database; it does not"
        " start on the old one any more.",
    ]
    return CommandResult(data, lines)
