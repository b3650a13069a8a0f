"""`countersign blocklist`: advisories that block installs in every organisation."""

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from service.cli.answers import Answer
from service.cli.asking import confirm, yes_option
from service.cli.blocklist_feeds import feed_lines
from service.cli.context import CommandContext, command
from service.cli.progress import byte_progress
from service.cli.proposals import printable
from service.cli.root import root
from service.cli.tables import Table
from service.core.errors import Invalid
from service.core.exit_codes import ExitCode
from service.packages.policy.blocklist import BlocklistImporter, Changes, ImportResult
from service.packages.policy.blocklist_api import (
    IMPORTS_LISTED,
    BlocklistStatus,
    RemovedFeed,
    SbomComparison,
)
from service.packages.policy.blocklist_contents import OSV
from service.packages.policy.repository import list_imports, load_feed_states
from service.packages.policy.sbom import SBOM_BYTES_MAX, compare_sbom

_MALICIOUS: Final = "MAL-*"
_COLUMNS: Final = {
    "state": "state",
    "imported": "imported_at",
    "feed": "feed",
    "file": "file",
    "ids": "ids",
    "records": "records",
    "advisories": "advisories",
    "unreadable": "unreadable",
}


@root.group("blocklist")
def blocklist() -> None:
    """The blocklist: known malicious releases, for all organisations."""


@command(blocklist, "import", changes=True)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--feed",
    default=OSV,
    show_default=True,
    metavar="NAME",
    help="Whose records they are; those of other feeds stay.",
)
@click.option(
    "--ids",
    multiple=True,
    default=(_MALICIOUS,),
    show_default=True,
    metavar="GLOB",
    help="Import the records with such ids; can be repeated.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what would change; exit code 5 if any.")
@yes_option
async def blocklist_import(
    context: CommandContext,
    file: Path,
    feed: str,
    ids: tuple[str, ...],
    *,
    is_plan: bool,
    is_sure: bool,
) -> Answer:
    """Replace a feed's part of the blocklist by FILE, OSV's bulk format (a zip).

    Replaced are the records of the feed with such ids, of the ecosystems that FILE is about. A loss
    of more than a tenth of an ecosystem's asks for confirmation. Withdrawn records are left out. A
    record that cannot be read is named, and the exit code is 4 then; what an earlier import said
    under its id stays. All that was in force stays in force until the new list is complete.
    """
    importer = BlocklistImporter(context.services.store)
    with file.open("rb") as opened, ExitStack() as shown:
        show = shown.enter_context(byte_progress(f"Importing {file.name}"))

        def approve(changes: Changes) -> bool:
            shown.close()  # a bar would be drawn over the question
            return not is_plan and _is_accepted(feed, changes, is_sure=is_sure)

        result = await importer.import_file(
            opened, file.name, ids, context.audit_context, show, feed=feed, approve=approve
        )
    table = _table(feed, result.changes) if result.changes else None
    code = ExitCode.INCOMPLETE if result.counts.unreadable else ExitCode.DONE
    if is_plan and not result.is_unchanged:
        code = ExitCode.CHANGES
    return Answer(_data(result), _lines(result), table, code=code)


def _is_accepted(feed: str, changes: Changes, *, is_sure: bool) -> bool:
    """True once a person accepts what is lost, or if it is little. Raises NotConfirmed."""
    lost = [
        f"{change.removed} of {change.before} advisories of {ecosystem}"
        for ecosystem, change in changes.items()
        if change.is_loss
    ]
    if lost:
        shown = _table(feed, changes).lines()
        loss = " and ".join(lost)
        confirm(f"The import would remove {loss}: import it?", is_sure=is_sure, shown=shown)
    return True


@command(blocklist, "remove", changes=True)
@click.option("--feed", required=True, metavar="NAME", help="The feed.")
@yes_option
async def blocklist_remove(context: CommandContext, feed: str, *, is_sure: bool) -> Answer:
    """Remove all of a feed from the blocklist, such as one that is no longer imported."""

    def approve(changes: Changes) -> bool:
        count = sum(change.removed for change in changes.values())
        question = f"Remove the feed {feed}, which blocks releases by {count} advisories?"
        confirm(question, is_sure=is_sure, shown=_table(feed, changes).lines())
        return True

    importer = BlocklistImporter(context.services.store)
    result = await importer.remove_feed(feed, context.audit_context, approve)
    removed = RemovedFeed.of(result)
    return Answer(
        msgspec.to_builtins(removed),
        [f"Removed the feed {feed}: {sum(removed.removed.values())} advisories."],
    )


@command(blocklist, "status")
async def blocklist_status(context: CommandContext) -> Answer:
    """Show what is in force of each feed, and the last imports."""
    services = context.services
    age = services.clock(), services.settings.blocklist_stale_s
    async with services.store.read() as session:
        feeds = await load_feed_states(session)
        imports = await list_imports(session, IMPORTS_LISTED)
    shown: dict[str, Any] = msgspec.to_builtins(BlocklistStatus.of(feeds, imports, *age))
    listed = [row | {"ids": " ".join(row["ids"])} for row in shown["imports"]]
    return Answer(
        shown,
        feed_lines(feeds, *age),
        Table.of("Imports", listed, _COLUMNS, ["imported"]) if imports else None,
    )


@command(blocklist, "check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
async def blocklist_check(context: CommandContext, file: Path) -> Answer:
    """Compare FILE, a software bill of materials (CycloneDX, JSON), with the blocklist.

    The exit code is 1 if the blocklist names any of its packages.
    """
    now = context.services.clock()
    read = partial(compare_sbom, content=_read_sbom(file), now=now)
    result = await context.services.store.read_at_once(read)
    compared = SbomComparison.of(result)
    lines = [
        f"{len(compared.findings)} of {compared.compared} packages are on the blocklist."
        f" Other components, which were not compared: {compared.others}.",
        *(
            f"  {finding.ecosystem}:{finding.package} {printable(finding.version)}:"
            f" {', '.join(finding.advisories)}"
            for finding in compared.findings
        ),
    ]
    code = ExitCode.FAILED if compared.findings else ExitCode.DONE
    return Answer(msgspec.to_builtins(compared), lines, code=code)


def _read_sbom(file: Path) -> bytes:
    if file.stat().st_size > SBOM_BYTES_MAX:
        raise Invalid(f"{file.name} must have at most {SBOM_BYTES_MAX >> 20} MiB")
    return file.read_bytes()


def _data(result: ImportResult) -> dict[str, Any]:
    counts = result.counts
    return {
        "generation": result.generation,
        "feed": result.feed,
        "sha256": result.sha256,
        "is_unchanged": result.is_unchanged,
        "is_in_force": result.is_in_force,
        "records": counts.records,
        "advisories": counts.advisories,
        "ecosystems": {
            str(ecosystem): asdict(change) for ecosystem, change in result.changes.items()
        },
        "withdrawn": counts.withdrawn,
        "other": counts.other,
        "unreadable": counts.unreadable,
        "unreadable_records": [{"name": name, "error": error} for name, error in counts.examples],
        "seconds": round(result.seconds, 2),
    }


def _table(feed: str, changes: Changes) -> Table:
    columns = ["ecosystem", "before", "after", "added", "removed", "changed"]
    rows = [{"ecosystem": str(ecosystem)} | asdict(change) for ecosystem, change in changes.items()]
    return Table.of(f"Advisories of the feed {feed}", rows, columns)


def _lines(result: ImportResult) -> list[str]:
    counts = result.counts
    if not result.changes:
        return [f"Nothing to change: this file is in force ({counts.advisories} advisories)."]
    outcome = "Nothing was changed: this is a plan."
    if result.is_unchanged:
        outcome = "Nothing to change: all of this is in force."
    elif result.is_in_force:
        outcome = f"In force, after {result.seconds:.1f} s."
    lines = [
        outcome,
        f"Left out: {counts.withdrawn} withdrawn, {counts.other} other records,"
        f" {counts.unreadable} unreadable.",
    ]
    lines += [f"  {name}: {error}" for name, error in counts.examples]
    if counts.unreadable > len(counts.examples):
        lines.append(f"  and {counts.unreadable - len(counts.examples)} more")
    return lines
