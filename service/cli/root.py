"""The group of all commands, which are imported when they run, and how the process ends."""

import ast
import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from service.core.exit_codes import ExitCode

_FOLDER: Final = Path(__file__).parent
_SUMMARY_CHARS_MAX: Final = 100
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class GroupKey(NamedTuple):
    """A group: the module and the name of the function that declares it."""

    module: str
    function: str


@dataclass(frozen=True, slots=True)
class Declared:
    """A command: the module whose import adds it to its group, and its line in lists."""

    module: str
    summary: str


@functools.cache
def declared_commands() -> Mapping[GroupKey, Mapping[str, Declared]]:
    """The commands of each group by name, as all modules of this package declare them."""
    found: dict[GroupKey, dict[str, Declared]] = {}
    for path in sorted(_FOLDER.glob("*.py")):
        module = f"{__package__}.{path.stem}"
        for group, name, summary in _of_module(module, path.read_text()):
            found.setdefault(group, {})[name] = Declared(module, summary)
    return found


def _of_module(module: str, source: str) -> Iterator[tuple[GroupKey, str, str]]:
    """Group, name and summary of each command that a module declares."""
    imported: dict[str, GroupKey] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            for alias in statement.names:
                key = GroupKey(statement.module, alias.name)
                imported[alias.asname or alias.name] = key
        elif isinstance(statement, _Function):
            for group, name in map(_declared_by, statement.decorator_list):
                if group is not None:
                    key = imported.get(group, GroupKey(module, group))
                    yield key, name, _summary(statement)


def _declared_by(decorator: ast.expr) -> tuple[str | None, str]:
    """The group and the name that a decorator gives a command; None if it declares none."""
    match decorator:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=group), attr="command" | "group"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return group, name
        case ast.Call(
            func=ast.Name(), args=[ast.Name(id=group), ast.Constant(value=str(name)), *_]
        ):
            return group, name
        case _:
            return None, ""


def _summary(function: _Function) -> str:
    """The first sentence of its docstring, as click takes it for lists."""
    command = click.Command(None, help=ast.get_docstring(function))
    return command.get_short_help_str(_SUMMARY_CHARS_MAX)


class LazyGroup(click.Group):
    """A group that imports a declared command when it runs, and answers a mistyped name.

    Groups that are declared in it are of the same class.
    """

    group_class: type[click.Group] | type[type] | None = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in order."""
        return sorted(self._declared)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None if there is none of this name."""
        declared = self._declared.get(cmd_name)
        if declared is not None and cmd_name not in self.commands:
            import_module(declared.module)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with. Raises NoSuchCommand, which names the nearest."""
        name = args[0]
        if not ctx.resilient_parsing and name not in self._declared and not name.startswith("-"):
            raise NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options that begin with `incomplete`, without importing any command."""
        commands = [
            CompletionItem(name, help=summary)
            for name, summary in self._summaries
            if name.startswith(incomplete)
        ]
        return [*commands, *super(click.Group, self).shell_complete(ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(self._summaries)

    @property
    def _declared(self) -> Mapping[str, Declared]:
        function = self.callback
        if function is None:
            return {}
        return declared_commands().get(GroupKey(function.__module__, function.__name__), {})

    @property
    def _summaries(self) -> list[tuple[str, str]]:
        return sorted((name, command.summary) for name, command in self._declared.items())


_END_OF_OPTIONS = "--"


class RootGroup(LazyGroup):
    """The commands. Each way to end has its exit code, and none has a traceback of ours."""

    group_class = LazyGroup

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
