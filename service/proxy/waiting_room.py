"""Bounds the requests that a process has at registries at once, and those that wait to be sent.

No organisation and no registry may have more than a share of either, so that the requests of one
organisation, or those to a registry that does not answer, leave room for the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from service.errors import ProxyBusy

CONNECTIONS_MAX: Final = 128
"""Connections of a process to all registries."""

WAITING_MAX: Final = 1024
"""Requests of a process that wait for one of them."""

WAIT_S: Final = 15.0
"""How long they wait: package managers give up on a silent server no sooner."""


@dataclass(frozen=True, slots=True)
class RoomLimits:
    """How many requests may be under way and wait, and the part of each for one holder."""

    connections: int = CONNECTIONS_MAX
    waiting: int = WAITING_MAX
    org_part: float = 0.5
    registry_part: float = 0.75
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose request it is, and which registry it is for."""

    org: str
    registry: str


class Shares:
    """Units of one kind, of which each organisation and each registry may have a part."""

    def __init__(self, units: int, org_part: float, registry_part: float) -> None:
        self._units = units
        self._org_max = max(1, int(units * org_part))
        self._registry_max = max(1, int(units * registry_part))
        self._taken = 0
        self._by_org = Counter[str]()
        self._by_registry = Counter[str]()

    @property
    def taken(self) -> int:
        """How many units are held."""
        return self._taken

    def held(self, registry: str) -> int:
        """How many units are held for this registry."""
        return self._by_registry[registry]

    def take(self, holder: Holder) -> bool:
        """Take a unit; False if there is none left for the holder."""
        if (
            self._taken >= self._units
            or self._by_org[holder.org] >= self._org_max
            or self._by_registry[holder.registry] >= self._registry_max
        ):
            return False
        self._taken += 1
        self._by_org[holder.org] += 1
        self._by_registry[holder.registry] += 1
        return True

    def give_back(self, holder: Holder) -> None:
        """Return a unit that `take` took."""
        self._taken -= 1
        _count_down(self._by_org, holder.org)
        _count_down(self._by_registry, holder.registry)


def _count_down(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]  # names are of requests: they must not pile up


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    holder: Holder
    admitted: asyncio.Future[None]


class Place:
    """The right to send one request, until `leave`."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._is_held = True

    def leave(self) -> None:
        """Give the place to the next request. Safe to repeat."""
        if self._is_held:
            self._is_held = False
            self._leave()

    def __enter__(self) -> "Place":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()


class WaitingRoom:
    """The requests of one process to all registries. Lives in one event loop."""

    def __init__(
        self,
        limits: RoomLimits | None = None,
        *,
        observe: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`observe` gets the number of waiting requests whenever it changes, for metrics."""
        limits = limits or RoomLimits()
        self.wait_s = limits.wait_s
        parts = limits.org_part, limits.registry_part
        self._connections = Shares(limits.connections, *parts)
        self._waiting = Shares(limits.waiting, *parts)
        self._queue: dict[_Waiter, None] = {}
        self._observe = observe

    @property
    def under_way(self) -> int:
        """How many places are held."""
        return self._connections.taken

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return self._waiting.taken

    def held(self, registry: str) -> int:
        """How many places requests to this registry hold."""
        return self._connections.held(registry)

    def try_enter(self, holder: Holder) -> Place | None:
        """A place if there is one now."""
        # No request that waits could have it: it would have got it when it became free.
        return self._place(holder) if self._connections.take(holder) else None

    async def enter(self, holder: Holder) -> Place:
        """A place; waits for one, and gives up its turn if cancelled.

        Raises ProxyBusy if too many wait or none becomes free, and what `refuse` was given.
        """
        place = self.try_enter(holder)
        if place is not None:
            return place
        if not self._waiting.take(holder):
            raise ProxyBusy("too many requests wait for a connection")
        waiter = _Waiter(holder, asyncio.get_running_loop().create_future())
        self._queue[waiter] = None
        self._observe(self.waiting)
        try:
            await self._wait(waiter)
        finally:
            self._queue.pop(waiter, None)
            self._waiting.give_back(holder)
            self._observe(self.waiting)
        return self._place(holder)

    def refuse(self, registry: str, error: Callable[[], Exception]) -> None:
        """End the waits for this registry: each raises an exception of its own."""
        for waiter in self._queue:
            if waiter.holder.registry == registry and not waiter.admitted.done():
                waiter.admitted.set_exception(error())

    async def _wait(self, waiter: _Waiter) -> None:
        admitted = waiter.admitted
        try:
            async with asyncio.timeout(self.wait_s):
                await admitted
        except BaseException as error:
            # Admitted and cancelled before it could continue: without this the place is lost.
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self._leave(waiter.holder)
            if isinstance(error, TimeoutError):
                raise ProxyBusy("no connection became free in time") from error
            raise

    def _place(self, holder: Holder) -> Place:
        return Place(lambda: self._leave(holder))

    def _leave(self, holder: Holder) -> None:
        self._connections.give_back(holder)
        # All of them: one of this organisation and one for this registry may both have room now.
        for waiter in self._queue:
            if not waiter.admitted.done() and self._connections.take(waiter.holder):
                waiter.admitted.set_result(None)
