"""How a command is declared in its groups."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def declare(group: click.Group, name: str) -> Callable[[_Function], _Function]:
    """Add a function with click's options to `group` as the command `name`.

    It stays a function, which can be declared in another group, too.
    """

    def register(function: _Function) -> _Function:
        @functools.wraps(function)
        def run(**options: Any) -> None:  # noqa: ANN401 - click's own values
            function(**options)

        run.__dict__["__click_params__"] = [*getattr(function, "__click_params__", ())]
        group.command(name)(run)
        return function

    return register
