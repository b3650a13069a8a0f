"""The groups of services that routes work with; each asks for the one that it names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from quart import Quart, current_app

from service.access.authorization import Authorizer
from service.core.clock import Clock
from service.core.settings import Settings
from service.store.store import Store

_EXTENSION: Final = "countersign.groups"

_Group = TypeVar("_Group")


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
