"""The group of all commands.

A command's module is imported when the command runs: `countersign --help` needs no web framework
and no database engine.
"""

import click

from service.cli.groups import LateGroup


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="countersign", prog_name="countersign")
def root() -> None:
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
