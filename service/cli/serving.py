"""`countersign init` and `serve`: prepare the data dir, and serve it."""

import asyncio
import sys

import click

from service.cli.commands import CommandPlace, declare
from service.cli.output import CommandResult
from service.cli.root import root
from service.core.settings import load_settings


@declare(root, "init", place=CommandPlace.LOCAL, changes=True)
def init_command() -> CommandResult:
    """Prepare the data dir: folders, secrets, database schema. Safe to repeat."""
    # Imported here: completion needs neither this nor its dependencies.
    from service.app.bootstrap import prepare

    settings = load_settings()
    asyncio.run(prepare(settings))
    token = str(settings.admin_tokens_file or "the setting")
    return CommandResult(
        data={"data_dir": str(settings.data_dir), "admin_token": token},
        lines=[f"Ready: {settings.data_dir}", f"The admin token is in {token}."],
    )


@declare(root, "serve", place=CommandPlace.LOCAL)
@click.option("--host", help="Address to listen on (COUNTERSIGN_HOST).")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port (COUNTERSIGN_PORT).")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes that serve together (COUNTERSIGN_WORKERS).",
)
def serve_command(host: str | None, port: int | None, workers: int | None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Requests in flight are finished first. With --json a failure to start is JSON; the log always
    is.
    """
    from service.app.server import serve

    sys.exit(serve(load_settings(host=host, port=port, workers=workers)))
