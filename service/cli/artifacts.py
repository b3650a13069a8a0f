"""`countersign artifact`: files whose bytes changed at their registry."""

from typing import Final

import click

from service.cli.client import Client, drop_none
from service.cli.commands import api_command
from service.cli.output import CommandResult, Table
from service.cli.root import root

_PATH: Final = "/api/v1/operator/artifacts"
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


@api_command(artifact, "list", needs_org=False)
async def artifact_list(client: Client) -> CommandResult:
    """List files that are refused because their registry served others under their names."""
    listed = await client.get(_PATH)
    rows = listed["artifacts"]
    said = [] if rows else ["No file has changed."]
    table = Table.of("Changed files", rows, _COLUMNS, ["offered_at"]) if rows else None
    return CommandResult(listed, said, table)


@api_command(artifact, "accept", changes=True, needs_org=False)
@click.argument("file_name", metavar="FILE")
@click.option("--digest", required=True, help="The offered digest, as `artifact list` shows it.")
@click.option("--registry", help="The registry's URL, if several have a file of this name.")
async def artifact_accept(
    client: Client, file_name: str, digest: str, registry: str | None
) -> CommandResult:
    """Take the file that the registry offers now for FILE, in every organisation.

    Look at the new file first: a release whose bytes change may have been taken over. Each
    organisation gets an audit row.
    """
    body = drop_none(file_name=file_name, digest=digest, registry=registry)
    accepted = await client.post(f"{_PATH}/accept", body)
    return CommandResult(accepted, [f"Accepted: {file_name} is now {digest}."])
