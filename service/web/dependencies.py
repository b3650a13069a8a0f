"""Dependencies of routes: a route names the group of services it needs and receives that alone."""

from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from quart import Quart, current_app

_EXTENSION: Final = "countersign.groups"

_Group = TypeVar("_Group")
_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


def provide(app: Quart, groups: Iterable[object]) -> None:
    """Let the routes of `app` receive these groups, one of each class."""
    app.extensions[_EXTENSION] = {type(group): group for group in groups}


def receives(
    group: type[_Group],
) -> Callable[
    [Callable[Concatenate[_Group, _Parameters], Awaitable[_Answer]]],
    Callable[_Parameters, Awaitable[_Answer]],
]:
    """Give a route the app's `group` as its first argument."""

    def decorate(
        route: Callable[Concatenate[_Group, _Parameters], Awaitable[_Answer]],
    ) -> Callable[_Parameters, Awaitable[_Answer]]:
        @wraps(route)
        async def run(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
            return await route(current_app.extensions[_EXTENSION][group], *arguments, **named)

        return run

    return decorate
