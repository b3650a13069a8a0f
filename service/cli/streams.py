"""`countersign stream`: where an organisation's rows are sent."""

from typing import Any, Final, TextIO

import click

from service.cli.client import Client, drop_none, org_path
from service.cli.commands import api_command
from service.cli.output import CommandResult, Table
from service.cli.root import root
from service.core.exit_codes import ExitCode

_COLUMNS: Final = ("id", "name", "kind", "state", "lag_rows", "lag_s", "parked", "answer")
_AFTER: Final = click.option("--after", help="Send rows after this id; start: all; now: new ones.")
_SECRET: Final = click.option("--secret-file", type=click.File(), help="Its secret; - reads it.")


@root.group("stream")
def stream() -> None:
    """Streams: send audit rows to a SIEM or a bucket, at least once and in order."""


@api_command(stream, "list")
async def stream_list(client: Client, slug: str) -> CommandResult:
    """List streams, how far each is behind, and what its receiver answered last."""
    listed = await client.get(org_path(slug, "streams"))
    return CommandResult(listed, table=Table.of("Streams", listed["streams"], _COLUMNS))


@api_command(stream, "create", changes=True)
@click.option("--name", required=True, help="Its name.")
@click.option(
    "--kind",
    required=True,
    help="webhook, splunk_hec, otlp, syslog, s3, chat, pagerduty or mail.",
)
@click.option("--url", required=True, help="Where rows are sent, such as https://HOST/PATH.")
@click.option("--format", help="wire (the default) or ocsf.")
@click.option("--query", help="Filters, such as event=blocklist_hit.")
@_AFTER
@_SECRET
async def stream_create(client: Client, /, slug: str, **given: Any) -> CommandResult:  # noqa: ANN401
    """Create a stream. The secret of a webhook is shown only once."""
    return _said(await client.post(org_path(slug, "streams"), _body(**given)))


@api_command(stream, "change", changes=True)
@click.argument("stream_id")
@click.option("--state", help="active or paused.")
@_AFTER
@_SECRET
@click.option("--new-secret", "secret", flag_value="", help="Make a new secret of a webhook.")
async def stream_change(
    client: Client,
    /,
    slug: str,
    stream_id: str,
    **given: Any,  # noqa: ANN401
) -> CommandResult:
    """Pause or resume a stream, send rows again, or replace its secret."""
    return _said(await client.put(org_path(slug, "streams", stream_id), _body(**given)))


@api_command(stream, "test", changes=True)
@click.argument("stream_id")
async def stream_test(client: Client, slug: str, stream_id: str) -> CommandResult:
    """Send a test record, and show what the receiver answers. Exit code 1: it refused it."""
    tested = await client.post(org_path(slug, "streams", stream_id, "test"), b"")
    code = ExitCode.DONE if tested["accepted"] else ExitCode.FAILED
    return CommandResult(tested, [tested["answer"]], code=code)


@api_command(stream, "delete", changes=True)
@click.argument("stream_id")
async def stream_delete(client: Client, slug: str, stream_id: str) -> CommandResult:
    """Delete a stream: its receiver is sent no more."""
    deleted = await client.delete(org_path(slug, "streams", stream_id))
    return CommandResult({"deleted": deleted["id"]}, [f"Deleted {stream_id}."])


def _body(secret_file: TextIO | None, **given: Any) -> dict[str, Any]:  # noqa: ANN401
    secret = None if secret_file is None else secret_file.read().strip()
    return drop_none(secret=secret) | drop_none(**given)


def _said(stream: dict[str, Any]) -> CommandResult:
    lines = [f"Stream {stream['id']} ({stream['name']}) is {stream['state']}."]
    if stream["secret"] is not None:
        lines += ["Its secret, shown only once:", stream["secret"]]
    return CommandResult(stream, lines)
