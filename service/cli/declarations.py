"""The commands that the modules of this package declare, read from their source.

To import the modules takes two seconds, and lists of commands must not wait for that. A command or
group is declared by a decorator at the top level of a module, such as

    @root.group("audit")    @command(audit, "check")    @anywhere_command(root, "explain")
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import click

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
