"""Groups of commands that are imported when they run."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem


class Late(NamedTuple):
    """Where a command is defined, and its line in the list of commands.

    `module` is below service.cli. `attribute` is the command in it; None if importing the module
    adds the command to its group. `more` are the modules that add commands to a group when they
    are imported.
    """

    module: str
    summary: str
    attribute: str | None = None
    more: tuple[str, ...] = ()


class LateGroup(click.Group):
    """A group that imports the commands in `late` when they run, and answers a mistyped name."""

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - as declared by click
        late: Mapping[str, Late] | None = None,
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **named)
        self.late = late or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in order."""
        return sorted({*self.commands, *self.late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None if there is none of this name."""
        late = self.late.get(cmd_name)
        if late is not None and cmd_name not in self.commands:
            module = import_module(f"service.cli.{late.module}")
            for name in late.more:
                import_module(f"service.cli.{name}")
            if late.attribute is not None:
                self.add_command(getattr(module, late.attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with. Raises NoSuchCommand, which names the nearest."""
        name = args[0]
        if (
            not ctx.resilient_parsing
            and name not in self.list_commands(ctx)
            and not name.startswith("-")
        ):
            raise NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options that begin with `incomplete`, without importing any command."""
        commands = [
            CompletionItem(name, help=summary)
            for name, summary in self._summaries(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *super(click.Group, self).shell_complete(ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(self._summaries(ctx))

    def _summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [
            (
                name,
                self.late[name].summary
                if name in self.late
                else self.commands[name].get_short_help_str(limit=100),
            )
            for name in self.list_commands(ctx)
        ]
