"""Bounds the requests that a process has at registries at once, and those that wait to be sent.

At one registry an organisation may hold as many permits as are free, and twice as many at all its
registries together (dynamic thresholds: Choudhury and Hahne, 1998). An eighth of all permits does
not count as free for those: it is for organisations that hold none. So neither one organisation nor
several, at however many registries that do not answer, take the last permit from another. A permit
that becomes free goes to the organisation that holds the fewest.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeVar

from service.packages.refusals import (
    TOO_MANY_ANSWERS,
    TOO_MANY_REGISTRY_REQUESTS,
    ProxyBusy,
    RegistryLimited,
)

WAITING_MAX: Final = 1024
"""Requests of a process that wait for one of them."""

WAIT_S: Final = 15.0
"""How long they wait: package managers give up on a silent server no sooner."""

REGISTRY_PER_FREE: Final = 1
ORG_PER_FREE: Final = 2
"""How many units an organisation may hold at one registry, and in all, for each free one."""

RESERVED: Final = 8
"""One of how many units is for organisations that hold none."""


_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many requests may be under way, and wait, and for how long."""

    connections: int = 128
    waiting: int = WAITING_MAX
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose request it is, and which registry it is for."""

    org: str
    registry: str


class Shares:
    """Units of one kind, which organisations may hold in proportion to those that are free."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._taken = 0
        self._by_org = Counter[str]()
        self._by_registry = Counter[str]()
        self._by_holder = Counter[Holder]()

    @property
    def taken(self) -> int:
        """How many units are held."""
        return self._taken

    def held_by(self, org: str) -> int:
        """How many units the organisation holds."""
        return self._by_org[org]

    def held_at(self, registry: str) -> int:
        """How many units are held for this registry."""
        return self._by_registry[registry]

    def take(self, holder: Holder) -> bool:
        """Take a unit; False if there is none left for the holder."""
        free = self._units - self._taken
        if free <= 0 or not (self._by_org[holder.org] == 0 or self._has_share_left(holder)):
            return False
        self._taken += 1
        self._by_org[holder.org] += 1
        self._by_registry[holder.registry] += 1
        self._by_holder[holder] += 1
        return True

    def _has_share_left(self, holder: Holder) -> bool:
        free = self._units - self._units // RESERVED - self._taken
        return (
            self._by_holder[holder] < free * REGISTRY_PER_FREE
            and self._by_org[holder.org] < free * ORG_PER_FREE
        )

    def give_back(self, holder: Holder) -> None:
        """Return a unit that `take` took."""
        self._taken -= 1
        _count_down(self._by_org, holder.org)
        _count_down(self._by_registry, holder.registry)
        _count_down(self._by_holder, holder)


def _count_down(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]  # keys are of requests: they must not pile up


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    holder: Holder
    admitted: asyncio.Future[None]


class Permit(AbstractContextManager["Permit"]):
    """The right to send one request, until `release`."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._is_held = True

    def release(self) -> None:
        """Give the permit to the next request. Safe to repeat."""
        if self._is_held:
            self._is_held = False
            self._release()

    def __exit__(self, *_: object) -> None:
        self.release()


class AdmissionQueue:
    """The requests of one process to all registries. Lives in one event loop."""

    def __init__(
        self,
        limits: AdmissionLimits | None = None,
        *,
        observe: Callable[[str, int, int], None] = lambda _org, _under_way, _waiting: None,
    ) -> None:
        """`observe` is for metrics.

        It gets an organisation, and how many of its requests are under way and wait, whenever that
        changes.
        """
        limits = limits or AdmissionLimits()
        self.wait_s = limits.wait_s
        self._connections = Shares(limits.connections)
        self._waiting = Shares(limits.waiting)
        self._queues: dict[str, dict[_Waiter, None]] = {}
        """The requests that wait, by organisation; the one served last is the last."""

        self._observe = observe

    @property
    def under_way(self) -> int:
        """How many permits are held."""
        return self._connections.taken

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""
        return self._waiting.taken

    def held(self, registry: str) -> int:
        """How many permits requests to this registry hold."""
        return self._connections.held_at(registry)

    def try_enter(self, holder: Holder) -> Permit | None:
        """A permit if there is one now."""
        # No request that waits could have it: it would have got it when it became free.
        return self._permit(holder) if self._take(holder) else None

    async def enter(self, holder: Holder) -> Permit:
        """A permit; waits for one, and gives up its turn if cancelled.

        Raises ProxyBusy if too many wait or none becomes free, and what `refuse` was given.
        """
        permit = self.try_enter(holder)
        if permit is not None:
            return permit
        if not self._waiting.take(holder):
            raise ProxyBusy("too many requests wait for a connection")
        waiter = _Waiter(holder, asyncio.get_running_loop().create_future())
        self._queues.setdefault(holder.org, {})[waiter] = None
        self._report(holder.org)
        try:
            await self._wait(waiter)
        finally:
            self._remove(waiter)
        return self._permit(holder)

    def refuse(self, registry: str, error: Callable[[], Exception]) -> None:
        """End the waits for this registry: each raises an exception of its own."""
        for queue in self._queues.values():
            for waiter in queue:
                if waiter.holder.registry == registry and not waiter.admitted.done():
                    waiter.admitted.set_exception(error())

    async def _wait(self, waiter: _Waiter) -> None:
        admitted = waiter.admitted
        try:
            async with asyncio.timeout(self.wait_s):
                await admitted
        except BaseException as error:
            # Admitted and cancelled before it could continue: without this the permit is lost.
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self._release(waiter.holder)
            if isinstance(error, TimeoutError):
                raise ProxyBusy("no connection became free in time") from error
            raise

    def _remove(self, waiter: _Waiter) -> None:
        org = waiter.holder.org
        del self._queues[org][waiter]
        if not self._queues[org]:
            del self._queues[org]
        self._waiting.give_back(waiter.holder)
        self._report(org)

    def _permit(self, holder: Holder) -> Permit:
        return Permit(lambda: self._release(holder))

    def _take(self, holder: Holder) -> bool:
        is_taken = self._connections.take(holder)
        if is_taken:
            self._report(holder.org)
        return is_taken

    def _release(self, holder: Holder) -> None:
        self._connections.give_back(holder)
        self._report(holder.org)
        # All that fit: more than one may, because what an organisation may hold grows with the
        # permits that are free.
        while (waiter := self._admit_next()) is not None:
            waiter.admitted.set_result(None)

    def _admit_next(self) -> _Waiter | None:
        """The next request that has a permit now: of the organisation that holds the fewest."""
        for org in sorted(self._queues, key=self._connections.held_by):
            for waiter in self._first_of_each_registry(org):
                if self._take(waiter.holder):
                    self._queues[org] = self._queues.pop(org)  # the others have their turn first
                    return waiter
        return None

    def _first_of_each_registry(self, org: str) -> Iterator[_Waiter]:
        registries = set()
        for waiter in self._queues[org]:
            registry = waiter.holder.registry
            if registry not in registries and not waiter.admitted.done():
                registries.add(registry)
                yield waiter

    def _report(self, org: str) -> None:
        self._observe(org, self._connections.held_by(org), self._waiting.held_by(org))


PER_S: Final = 100.0
BURST_S: Final = 60.0
"""An organisation that has sent nothing may send the requests of so many seconds at once."""


class RequestRates:
    """The requests of one process, of each organisation to each registry (token buckets)."""

    def __init__(
        self,
        per_s: float = PER_S,
        *,
        timer: Callable[[], float] = time.monotonic,
        refused: Callable[[str, str], None] = lambda _org, _reason: None,
    ) -> None:
        """`timer` is any steady clock, in seconds.

        `refused` is for metrics: the organisation whose request is refused, and why.
        """
        self._request_s = 1 / per_s
        self._timer = timer
        self._refused = refused
        self._full_at: dict[Holder, float] = {}
        """When each bucket is full again if no more is taken from it: late is much used."""

        self._paused_until: dict[Holder, float] = {}

    def charge(self, holder: Holder) -> None:
        """Count a request that is about to be sent.

        Raises RegistryLimited while the organisation is paused, and TOO_MANY_REGISTRY_REQUESTS.
        """
        now = self._timer()
        paused_s = self._paused_until.get(holder, now) - now
        if paused_s > 0:
            self._refused(holder.org, "paused")
            raise RegistryLimited(
                f"{holder.registry}: this organisation is paused", math.ceil(paused_s)
            )
        full_at = max(self._full_at.get(holder, now), now) + self._request_s
        if full_at - now > BURST_S:
            self._refused(holder.org, "requests_to_registry")
            raise TOO_MANY_REGISTRY_REQUESTS(
                f"{holder.registry}: too many requests of one organisation"
            )
        self._full_at[holder] = full_at

    def pause_heaviest(self, registry: str, seconds: float) -> None:
        """Pause the organisation that has asked the registry most of late.

        Only this one: once it asks no more, the registry may answer the others.
        """
        holders = (holder for holder in self._full_at if holder.registry == registry)
        heaviest = max(holders, key=self._full_at.__getitem__, default=None)
        if heaviest is not None:
            self._paused_until[heaviest] = self._timer() + seconds


class AnswerLimiter:
    """The answers under way. Lives in one event loop."""

    def __init__(
        self,
        per_org: int,
        per_key: int,
        *,
        observe: Callable[[str, int], None] = lambda _org, _under_way: None,
        refused: Callable[[str, str], None] = lambda _org, _reason: None,
    ) -> None:
        """`observe` gets an organisation and its answers under way, whenever that changes.

        `refused` gets the organisation of an answer that is refused, and why. Both for metrics.
        """
        self._per_org = per_org
        self._per_key = per_key
        self._observe = observe
        self._refused = refused
        self._by_org = Counter[str]()
        self._by_key = Counter[str]()

    @property
    def under_way(self) -> int:
        """How many answers are under way."""
        return self._by_org.total()

    def count(self, org: str, key: str) -> None:
        """Count an answer, until the current task ends: Quart sends the last byte in it.

        Raises TOO_MANY_ANSWERS.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an answer is made in a task")
        if self._by_key[key] >= self._per_key:
            self._refused(org, "answers_of_key")
            raise TOO_MANY_ANSWERS(whose="key", setting="COUNTERSIGN_PROXY_ANSWERS_PER_KEY_MAX")
        if self._by_org[org] >= self._per_org:
            self._refused(org, "answers_of_org")
            raise TOO_MANY_ANSWERS(
                whose="organisation", setting="COUNTERSIGN_PROXY_ANSWERS_PER_ORG_MAX"
            )
        self._count(org, key, 1)
        task.add_done_callback(lambda _: self._count(org, key, -1))

    def _count(self, org: str, key: str, change: int) -> None:
        self._by_org[org] += change
        self._by_key[key] += change
        self._observe(org, self._by_org[org])
        for counts, name in ((self._by_org, org), (self._by_key, key)):
            if not counts[name]:
                del counts[name]
