"""The `countersign` command."""

import asyncio

import click

from service.bootstrap import prepare
from service.cli.apply import apply_file
from service.cli.audit import audit
from service.cli.backup import backup, restore
from service.cli.bindings import bindings
from service.cli.context import Answer, one_line_failures
from service.cli.demo import demo
from service.cli.orgs import org, project, team
from service.cli.people import apikey, member, session
from service.server import serve
from service.settings import load_settings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="countersign", prog_name="countersign")
def main() -> None:
    """Trust bindings for CI jobs, and the audit log of what they did.

    Settings come from the environment (COUNTERSIGN_DATA_DIR, COUNTERSIGN_PORT, …; see
    docs/settings.md). Every command takes --json for scripts (failures are
    JSON then, too, on standard error), and --help.

    \b
    Exit codes: 0 done, 1 refused (or a check found something), 2 wrong usage, 3 storage busy or
    silent (try again), 4 done but incomplete (a backup without its damaged segments).
    """  # noqa: D301 - click reads the backspace


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for scripts.")
def init(*, as_json: bool) -> None:
    """Prepare the data dir: folders, secrets, database schema. Safe to repeat."""
    with one_line_failures(as_json=as_json):
        settings = load_settings()
        asyncio.run(prepare(settings))
        token = "the setting" if settings.admin_token else str(settings.data_dir / "admin_token")
        Answer(
            data={"data_dir": str(settings.data_dir), "admin_token": token},
            lines=[f"Ready: {settings.data_dir}", f"The admin token is in {token}."],
        ).show(as_json=as_json)


@main.command("serve")
@click.option("--host", help="Address to listen on (COUNTERSIGN_HOST).")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port (COUNTERSIGN_PORT).")
@click.option(
    "--json", "as_json", is_flag=True, help="If it cannot start, say so in JSON; the log always is."
)
def serve_command(host: str | None, port: int | None, *, as_json: bool) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Requests in flight are finished first.
    """
    with one_line_failures(as_json=as_json):
        serve(load_settings(host=host, port=port))


main.add_command(apply_file)
main.add_command(demo)
main.add_command(backup)
main.add_command(restore)
for group in (org, project, team, member, apikey, session, bindings, audit):
    main.add_command(group)

if __name__ == "__main__":
    main()
