"""The `countersign` command.

It imports a command's module when that command runs: `countersign --help` needs no web framework
and no database engine, and the processes that the server spawns import this module first.
"""

from importlib import import_module
from typing import Final, NamedTuple

import click


class _Lazy(NamedTuple):
    """Where a command is, and the line that the list of commands shows of it.

    `more` are the modules that add commands to a group when they are imported.
    """

    module: str
    attribute: str
    summary: str
    more: tuple[str, ...] = ()


_COMMANDS: Final = {
    "access": _Lazy("access", "access", "Access: who could do what, as of a date."),
    "apikey": _Lazy("people", "apikey", "API keys: credentials of proxies and scripts."),
    "apply": _Lazy(
        "apply", "apply_file", "Create and change organisations as declared in FILE (TOML)."
    ),
    "audit": _Lazy(
        "audit",
        "audit",
        "The audit log: every install, block, admin change and sign-in.",
        more=("audit_maintenance", "exports", "imports", "retention"),
    ),
    "backup": _Lazy(
        "backup", "backup", "Take a backup as the new folder DEST, while the service runs."
    ),
    "bindings": _Lazy(
        "bindings",
        "bindings",
        "Trust bindings: which CI jobs an organisation trusts.",
        more=("bindings_replace", "bindings_sync", "explain", "rejected"),
    ),
    "demo": _Lazy("demo", "demo", "Create the demo organisation, unless it exists, and serve it."),
    "init": _Lazy(
        "serving", "init_command", "Prepare the data dir: folders, secrets, database schema."
    ),
    "member": _Lazy("people", "member", "Members: the people of an organisation."),
    "org": _Lazy("orgs", "org", "Organisations: the tenants of this service."),
    "project": _Lazy("orgs", "project", "Projects: what bindings and API keys can be limited to."),
    "restore": _Lazy(
        "backup", "restore", "Restore the backup SRC to the data dir (COUNTERSIGN_DATA_DIR)."
    ),
    "serve": _Lazy("serving", "serve_command", "Serve until SIGTERM or Ctrl-C."),
    "session": _Lazy("people", "session", "Sessions: issue sign-in links, and end sessions."),
    "team": _Lazy("orgs", "team", "Teams: groups of members that can have their own bindings."),
}


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None if there is none of this name."""
        lazy = _COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        for module in lazy.more:
            import_module(f"service.cli.{module}")
        command = getattr(import_module(f"service.cli.{lazy.module}"), lazy.attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - a slip in the table above
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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


if __name__ == "__main__":
    main()
