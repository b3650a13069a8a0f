"""How a command is declared: its groups, where it works, and whether it changes anything there.

Each command ends in the same way: with its answer, or with one line and the exit code of a failure.
"""

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeVar

import click

from service.cli.answers import Answer, Output, one_line_failures, refuse_unencodable_text
from service.cli.target import Target, choose_target, data_dir_target

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Place(Enum):
    """Where a command works."""

    DATA_DIR = auto()
    """On the data dir of this machine: with a server set, only with --local."""
    EITHER = auto()
    """On the server that is set, otherwise on the data dir."""
    SERVER = auto()
    """On the server that its own arguments name."""
    LOCAL = auto()
    """On this machine, also with a server set: what serves a data dir, or reads files alone."""


_LOCAL: Final = click.Option(
    ["--local", "is_local"], is_flag=True, help="Work on this machine's data dir."
)
_PLACE_OPTIONS: Final = {
    Place.DATA_DIR: (_LOCAL,),
    Place.LOCAL: (_LOCAL,),
    Place.EITHER: (
        click.Option(
            ["--server"], metavar="URL", help="Work on this server; default: COUNTERSIGN_SERVER."
        ),
        _LOCAL,
        click.Option(
            ["--insecure", "is_insecure"], is_flag=True, help="Allow http:// to another machine."
        ),
    ),
}
_JSON: Final = click.Option(
    ["--json", "as_json"], is_flag=True, help="Answer in JSON, for scripts."
)
_UTC: Final = click.Option(
    ["--utc", "is_exact"], is_flag=True, help="Show instants in UTC, not as `3 h ago`."
)


@dataclass(slots=True)
class Run:
    """A command that runs: how it writes, and its target if it has one of the two kinds."""

    output: Output
    target: Target | None
    is_local: bool = False
    is_target_shown: bool = False

    def use_data_dir(self, what: str) -> None:
        """Work on the data dir. Raises WrongPlace if a server is set, unless --local is given."""
        self.target = data_dir_target(what, is_local=self.is_local)

    def show_target(self) -> None:
        """Say on standard error, once, what the command works on."""
        if self.target is None or self.is_target_shown:
            return
        self.is_target_shown = True
        place, why = self.target.place, self.target.why
        said = json.dumps({"target": place, "why": why})
        click.echo(said if self.output.as_json else f"Target: {place} ({why}).", err=True)


class Command(click.Command):
    """A command that works at its `place`; `changes` tells whether it changes anything there.

    Its function gets the options that are its own, and may return an Answer.
    """

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - as declared by click
        place: Place,
        changes: bool,
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **named)
        self.place, self.changes = place, changes
        self.params += [
            *_PLACE_OPTIONS.get(place, ()),
            _JSON,
            *([] if place is Place.LOCAL else [_UTC]),
        ]

    def invoke(self, ctx: click.Context) -> None:
        """Run it to its end; its exit code, unless 0, ends the process."""
        given = ctx.params
        output = Output(given.pop("as_json"), given.pop("is_exact", True))
        with one_line_failures(output):
            refuse_unencodable_text(given)
            run = ctx.obj = self._run(ctx, output)
            answer = super().invoke(ctx)
            if not isinstance(answer, Answer):
                return
            if self.changes:
                run.show_target()
            answer.show(output)
            if answer.code:
                sys.exit(answer.code)

    def _run(self, ctx: click.Context, output: Output) -> Run:
        given = ctx.params
        run = Run(output, None, is_local=given.pop("is_local", False))
        if self.place is Place.DATA_DIR:
            run.use_data_dir(_words(ctx))
        elif self.place is Place.EITHER:
            server, is_insecure = given.pop("server"), given.pop("is_insecure")
            run.target = choose_target(server, is_local=run.is_local, is_insecure=is_insecure)
        return run


def declare(
    group: click.Group,
    name: str,
    *,
    place: Place,
    changes: bool = False,
    **settings: Any,  # noqa: ANN401 - click's
) -> Callable[[_Function], _Function]:
    """Add a function with click's options to `group` as the command `name`.

    It stays a function, which can be declared in another group, too. `settings` are click's.
    """

    def register(function: _Function) -> _Function:
        @functools.wraps(function)
        def run(**options: Any) -> Any:  # noqa: ANN401 - click's own values
            return function(**options)

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        group.command(name, cls=Command, place=place, changes=changes, **settings)(run)
        return function

    return register


def current_run() -> Run:
    """The command that runs."""
    run: Run = click.get_current_context().obj
    return run


def _words(ctx: click.Context) -> str:
    """The command's name after those of its groups."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(words)
