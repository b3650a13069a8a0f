"""`countersign init` and `serve`: prepare the data dir, and serve it."""

import asyncio
import sys

import click

from service.cli.commands import declare
from service.cli.context import Answer, one_line_failures
from service.cli.root import root
from service.settings import load_settings


@declare(root, "init")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")
def init_command(*, as_json: bool) -> None:
    """Prepare the data dir: folders, secrets, database schema. Safe to repeat."""
    # Imported here: completion needs neither this nor its dependencies.
    from service.bootstrap import prepare

    with one_line_failures(as_json=as_json):
        settings = load_settings()
        asyncio.run(prepare(settings))
        token = "the setting" if settings.admin_token else str(settings.data_dir / "admin_token")
        Answer(
            data={"data_dir": str(settings.data_dir), "admin_token": token},
            lines=[f"Ready: {settings.data_dir}", f"The admin token is in {token}."],
        ).show(as_json=as_json)


@declare(root, "serve")
@click.option("--host", help="Address to listen on (COUNTERSIGN_HOST).")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port (COUNTERSIGN_PORT).")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes that serve together (COUNTERSIGN_WORKERS).",
)
@click.option(
    "--json", "as_json", is_flag=True, help="If it cannot start, say so in JSON; the log always is."
)
def serve_command(
    host: str | None, port: int | None, workers: int | None, *, as_json: bool
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Requests in flight are finished first.
    """
    from service.server import serve

    with one_line_failures(as_json=as_json):
        sys.exit(serve(load_settings(host=host, port=port, workers=workers)))
