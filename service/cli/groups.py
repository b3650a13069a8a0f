"""Groups of commands that are imported when they run."""

from collections.abc import Mapping
from importlib import import_module

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from service.cli.declarations import Declared, GroupKey, declared_commands


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
