"""Dependency injection: a route receives only the group of services that it names."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from quart import Quart, current_app

from service.access.authorization import Authorizer
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.store import Store

_EXTENSION: Final = "countersign.groups"

_Group = TypeVar("_Group")
_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class BaseServices:
    """What the endpoints of every resource work with; a room's group adds what is its own."""

    settings: Settings
    clock: Clock
    access: Authorizer
    store: Store


def provide(app: Quart, groups: Iterable[object]) -> None:
    """Make these groups, one of each class, available to the routes of `app`."""
    app.extensions[_EXTENSION] = {type(group): group for group in groups}


def group_of(group: type[_Group]) -> _Group:
    """The current app's `group`."""
    groups: dict[type[_Group], _Group] = current_app.extensions[_EXTENSION]
    return groups[group]


def receives(
    group: type[_Group],
) -> Callable[
    [Callable[Concatenate[_Group, _Parameters], Awaitable[_Answer]]],
    Callable[_Parameters, Awaitable[_Answer]],
]:
    """Pass the app's `group` to a route as its first argument."""

    def decorate(
        route: Callable[Concatenate[_Group, _Parameters], Awaitable[_Answer]],
    ) -> Callable[_Parameters, Awaitable[_Answer]]:
        @wraps(route)
        async def run(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
            return await route(group_of(group), *arguments, **named)

        return run

    return decorate
