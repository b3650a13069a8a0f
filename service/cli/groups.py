"""Groups of commands that are imported when they run."""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

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


class LateGroup(click.Group):
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
