"""`countersign artifact`: files whose bytes changed at their registry."""

from typing import Any, Final

import click

from analytics.model.instants import format_ms
from service.cli.answers import Answer
from service.cli.context import CommandContext, command
from service.cli.root import root
from service.cli.tables import Table
from service.packages.proxy.artifacts import accept_artifact, list_changed
from service.store.tables import Artifact

_COLUMNS: Final = (
    "file_name",
    "package",
    "version",
    "registry",
    "digest",
    "offered_digest",
    "offered_at",
)


@root.group("artifact")
def artifact() -> None:
    """Package files whose bytes changed at their registry, for all organisations."""


@command(artifact, "list")
async def artifact_list(context: CommandContext) -> Answer:
    """List files that are refused because their registry served others under their names."""
    async with context.services.store.read() as session:
        rows = [_data(entry) for entry in await list_changed(session)]
    said = [] if rows else ["No file has changed."]
    table = Table.of("Changed files", rows, _COLUMNS, ["offered_at"]) if rows else None
    return Answer({"artifacts": rows}, said, table)


@command(artifact, "accept", changes=True)
@click.argument("file_name", metavar="FILE")
@click.option("--digest", required=True, help="The offered digest, as `artifact list` shows it.")
@click.option("--registry", help="The registry's URL, if several have a file of this name.")
async def artifact_accept(
    context: CommandContext, file_name: str, digest: str, registry: str | None
) -> Answer:
    """Take the file that the registry offers now for FILE, in every organisation.

    Look at the new file first: a release whose bytes change may have been taken over. Each
    organisation gets an audit row.
    """
    async with context.services.store.write() as work:
        entry = await accept_artifact(work, file_name, digest, registry, context.audit_context)
        data = _data(entry)
    return Answer(data, [f"Accepted: {file_name} is now {digest}."])


def _data(entry: Artifact) -> dict[str, Any]:
    return {
        "ecosystem": entry.ecosystem,
        "registry": entry.registry_url,
        "package": entry.package,
        "version": entry.version,
        "file_name": entry.file_name,
        "digest": entry.digest,
        "offered_digest": entry.offered_digest,
        "offered_at": entry.offered_at and format_ms(entry.offered_at),
        "accepted_at": entry.accepted_at and format_ms(entry.accepted_at),
    }
