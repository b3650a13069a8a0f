"""The group of all commands, and how the process ends.

A command's module is imported when the command runs: `countersign --help` needs no web framework
and no database engine.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from service.cli.groups import LateGroup
from service.core.exit_codes import ExitCode

_END_OF_OPTIONS = "--"


class RootGroup(LateGroup):
    """The commands. Each way to end has its exit code, and none has a traceback of ours."""

    group_class = LateGroup

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,  # noqa: ANN401 - as declared by click
    ) -> Any:  # noqa: ANN401
        """Run the command in `args`; in standalone mode the process ends with its exit code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        words = sys.argv[1:] if args is None else [*args]
        code: object = ExitCode.DONE
        try:
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            _show(error, words)
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            code = ExitCode.FAILED  # as click has it: the reader of the output has gone
        finally:
            _discard_unwritten()
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run the command. Ctrl-C ends the process quietly."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)


def _show(error: click.ClickException, words: Sequence[str]) -> None:
    """Write a wrong usage to standard error: with --json as a failure of a command."""
    options = words[: words.index(_END_OF_OPTIONS)] if _END_OF_OPTIONS in words else words
    if "--json" in options:
        click.echo(json.dumps({"error": " ".join(error.format_message().split())}), err=True)
    else:
        error.show()


def _discard_unwritten() -> None:
    """Drop what cannot be written: the interpreter would try once more and report a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _show_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from service.core.version import service_version

        click.echo(f"countersign, version {service_version()}")
        ctx.exit()


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def root() -> None:
    """Trust bindings for CI jobs, and the audit log of what they did.

    Commands work on a server after `countersign login URL`, otherwise on this machine's data dir;
    `countersign auth status` tells which. Settings come from the environment
    (COUNTERSIGN_DATA_DIR, COUNTERSIGN_SERVER, …; see docs/settings.md and docs/command-line.md).
    Every command takes --json for scripts (failures are JSON then, too, on standard error), and
    --help.
    """


root.epilog = "Exit codes: " + ", ".join(f"{code} {code.meaning}" for code in ExitCode) + "."
