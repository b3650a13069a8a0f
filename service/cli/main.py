"""The `countersign` command.

It imports a command's module when that command runs: `countersign --help` needs no web framework
and no database engine, and the processes that the server spawns import this module first.
"""

from typing import Final

import click

from service.cli.groups import Late, LateGroup

_COMMANDS: Final = {
    "access": Late("access", "Access: who could do what, as of a date.", "access"),
    "apikey": Late("people", "API keys: credentials of proxies and scripts.", "apikey"),
    "apply": Late(
        "apply", "Create and change organisations as declared in FILE (TOML).", "apply_file"
    ),
    "audit": Late(
        "audit", "The audit log: every install, block, admin change and sign-in.", "audit"
    ),
    "auth": Late("login", "What commands work on, and as whom.", "auth"),
    "backup": Late(
        "backup", "Take a backup as the new folder DEST, while the service runs.", "backup"
    ),
    "bindings": Late(
        "bindings",
        "Trust bindings: which CI jobs an organisation trusts.",
        "bindings",
        more=("explain", "rejected"),
    ),
    "ci": Late("ci", "CI jobs: install through the proxy, in the name of the job.", "ci"),
    "blocklist": Late(
        "blocklist", "The blocklist: known malicious releases, for all organisations.", "blocklist"
    ),
    "demo": Late("demo", "Create the demo organisation, unless it exists, and serve it.", "demo"),
    "explain": Late("explain", "Explain why a CI token is trusted or not.", "explain"),
    "init": Late(
        "serving", "Prepare the data dir: folders, secrets, database schema.", "init_command"
    ),
    "lake": Late(
        "lake", "The audit log as an Iceberg or Delta table for other query engines.", "lake"
    ),
    "login": Late("login", "Sign in to the server at URL: commands then work there.", "login"),
    "logout": Late("login", "Sign out of the server in use, or of URL.", "logout"),
    "member": Late("people", "Members: the people of an organisation.", "member"),
    "migrate": Late("migrate", "Copy the database from SQLite to PostgreSQL.", "migrate"),
    "org": Late("orgs", "Organisations: the tenants of this service.", "org"),
    "policy": Late(
        "policy", "Install policies: which packages an organisation's builds may install.", "policy"
    ),
    "project": Late("orgs", "Projects: what bindings and API keys can be limited to.", "project"),
    "restore": Late(
        "backup", "Restore the backup SRC to the data dir (COUNTERSIGN_DATA_DIR).", "restore"
    ),
    "serve": Late("serving", "Serve until SIGTERM or Ctrl-C.", "serve_command"),
    "session": Late("people", "Sessions: list and end them, and issue sign-in links.", "session"),
    "team": Late("orgs", "Teams: groups of members that can have their own bindings.", "team"),
    "whoami": Late("login", "Show what commands work on, why, and as whom.", "whoami"),
}


@click.group(
    cls=LateGroup, late=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="countersign", prog_name="countersign")
def main() -> None:
    """Trust bindings for CI jobs, and the audit log of what they did.

    Commands work on a server after `countersign login URL`, otherwise on this machine's data dir;
    `countersign auth status` tells which. Settings come from the environment
    (COUNTERSIGN_DATA_DIR, COUNTERSIGN_SERVER, …; see docs/settings.md and docs/command-line.md).
    Every command takes --json for scripts (failures are JSON then, too, on standard error), and
    --help.

    \b
    Exit codes: 0 done, 1 refused (or a check found something), 2 wrong usage, 3 storage busy or
    silent (try again), 4 done but incomplete (a backup without its damaged segments).
    """  # noqa: D301 - click reads the backspace


if __name__ == "__main__":
    main()
