"""Fair turns at the event loop: one organisation's requests must not hold up those of the others.

asyncio runs what is ready in the order in which it became ready. A request that waits a few times,
for a thread or another process, would each time queue behind all requests of an organisation that
sends many. So requests are taken step by step: a step is what one computes between two waits. While
several organisations use the loop, one that has used much of its time lately is heavy, and its
steps wait: each turn of the loop runs one of them, and none while a request of a light organisation
arrives, is about to continue, or is being answered.

Nothing waits while one organisation has the loop for itself, and light ones never wait.

Whose a request is, is known only after its credentials are checked, which takes steps of its own.
So until then a request counts as that of the organisation to which the same credentials belonged
last. A flood of requests of a heavy organisation thus waits from its first step on.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import exp
from time import perf_counter
from typing import Any, Final, TypeVar

from cachetools import LRUCache

LIGHT_S: Final = 0.25
"""An organisation is light up to this much of the loop's time within FADE_S: a quarter. It is never
slowed below that, however much the others do."""

FADE_S: Final = 1.0
"""Time used so long ago counts e times less. It must fade: between two steps an organisation has no
job in a queue, so it cannot keep a place there, as in `FairQueue`."""

BESIDE_S: Final = 1.0
"""So long after a step of another organisation the loop counts as shared with it."""

HOLD_S: Final = 0.01
"""So long after a light request has arrived, and after each of its steps, heavy ones are held for
its next one: most waits for a thread are shorter."""

REQUEST_S: Final = 0.0004
"""Time of the loop that each request takes outside of its steps: what the server does to read it
and to send the answer, measured as processor time."""

REMEMBERED_MAX: Final = 4_096
"""Credentials whose organisation is remembered."""

_DROPPED_AFTER_S: Final = 10 * FADE_S

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _LoopShare:
    """What an organisation has used of the loop, and its steps that wait."""

    used_s: float = 0.0
    as_of: float = 0.0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def used_at(self, now: float) -> float:
        """The time used lately."""
        return self.used_s * exp((self.as_of - now) / FADE_S)

    def is_light(self, now: float) -> bool:
        return self.used_at(now) <= LIGHT_S


class LoopTurns:
    """Decides whose step runs next in one event loop. A group is an organisation, or an address."""

    def __init__(self, observe: Callable[[str, float], object]) -> None:
        """`observe` gets the tenant id of each request that ends, and the seconds of its steps."""
        self.observe = observe
        self.clock: Callable[[], float] = perf_counter
        self.remembered: LRUCache[int, str] = LRUCache(REMEMBERED_MAX)
        """The organisations to which credentials belonged last, by a hash of these."""

        self._shares: dict[str, _LoopShare] = {}
        self._last: _LoopShare | None = None
        self._shared_until = 0.0
        self._last_tenant_id: str | None = None
        self._tenants_until = 0.0
        self._drops_at = 0.0
        self._held_until: dict[object, float] = {}
        self._next: asyncio.Handle | None = None

    def have_several_tenants(self) -> bool:
        """True while several organisations use the loop."""
        return self.clock() < self._tenants_until

    def may_run(self, group: str) -> bool:
        """True if a step of `group` need not wait."""
        now = self.clock()
        if now >= self._shared_until:
            return True
        share = self._shares.get(group)
        return share is None or (share.is_light(now) and not share.waiting)

    def wait(self, group: str) -> asyncio.Future[None]:
        """Done when it is the turn of a step of `group`."""
        waiter = asyncio.get_running_loop().create_future()
        self._share(group).waiting.append(waiter)
        self._begin_soon()
        return waiter

    def leave(self, group: str, waiter: asyncio.Future[None]) -> None:
        """Take out a step whose request was cancelled while it waited."""
        if waiter in (waiting := self._share(group).waiting):
            waiting.remove(waiter)

    def charge(self, request: "RequestTurns", used_s: float) -> None:
        """Count the time of a step that has just ended."""
        now = self.clock()
        share = self._share(request.group)
        share.used_s = share.used_at(now) + used_s
        share.as_of = now
        if share is not self._last:
            if self._last is not None:
                self._shared_until = now + BESIDE_S
            self._last = share
            self._drop_faded(now)
        if request.tenant_id not in (None, self._last_tenant_id):
            if self._last_tenant_id is not None:
                self._tenants_until = now + BESIDE_S
            self._last_tenant_id = request.tenant_id
        if share.is_light(now):
            self.hold(request.holder)
        else:
            self.release(request.holder)

    def hold(self, holder: object) -> None:
        """Hold heavy steps for a request that may be light: for HOLD_S, or until `release`."""
        self._held_until.pop(holder, None)
        self._held_until[holder] = self.clock() + HOLD_S  # the last one is the latest

    def release(self, holder: object) -> None:
        """Hold nothing for `holder` any more. Safe to repeat."""
        self._held_until.pop(holder, None)
        now = self.clock()
        # Such as those of streams, which stay open: the first one ends first.
        while self._held_until and next(iter(self._held_until.values())) <= now:
            del self._held_until[next(iter(self._held_until))]
        if not self._held_until and self._next is not None:
            self._next.cancel()
            self._next = None
            self._begin_soon()

    def _share(self, group: str) -> _LoopShare:
        share = self._shares.get(group)
        if share is None:
            share = self._shares[group] = _LoopShare(as_of=self.clock())
        return share

    def _begin_soon(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        """Let one step run in the next turn of the loop, unless heavy ones are held.

        Of the groups that wait, that of the group which has used least.
        """
        self._next = None
        now = self.clock()
        waiting = [share for share in self._shares.values() if share.waiting]
        if not waiting:
            return
        share = min(waiting, key=lambda share: share.used_at(now))
        held_s = next(reversed(self._held_until.values()), now) - now
        if held_s > 0 and not share.is_light(now):
            self._next = asyncio.get_running_loop().call_later(held_s, self._begin_next)
            return
        waiter = share.waiting.popleft()
        if not waiter.done():  # else its request is cancelled
            waiter.set_result(None)
        self._begin_soon()

    def _drop_faded(self, now: float) -> None:
        """Drop groups whose time has faded; looks for them once in FADE_S."""
        if now >= self._drops_at:
            self._drops_at = now + FADE_S
            for group, share in list(self._shares.items()):
                if now - share.as_of > _DROPPED_AFTER_S and not share.waiting:
                    del self._shares[group]


class RequestTurns:
    """The turns of one request, in the group of its organisation.

    Until this is known, it is that to which its `credentials` belonged last, or else its address:
    strangers, who may send any path, use up the turns of no organisation.
    """

    def __init__(
        self, turns: LoopTurns, address: str | None, credentials: int | None = None
    ) -> None:
        """`credentials` is a hash of them and of what they are to give access to."""
        recalled = None if credentials is None else turns.remembered.get(credentials)
        self.group = recalled or f"address {address}"
        self.tenant_id: str | None = None
        """Its organisation, once that is known."""

        self.is_attributed = recalled is not None
        """False for a request that could be of any organisation: it waits for no turn.

        Else a flood from an address would hold up those who share it, such as behind a proxy.
        """

        self.holder: object = CONNECTION.get() or self
        """For what heavy steps are held on its behalf."""

        if recalled is not None and not turns.may_run(recalled):
            turns.release(self.holder)
        self._turns = turns
        self._credentials = credentials
        self._used_s = 0.0
        self._uncharged_s = REQUEST_S

    async def assign(self, tenant_id: str) -> None:
        """Make its steps those of an organisation, with what it has used so far.

        Ends the current step if the organisation has to wait.
        """
        has_waited, self.is_attributed = self.group == tenant_id, True
        self.tenant_id = self.group = tenant_id
        if self._credentials is not None:
            self._turns.remembered[self._credentials] = tenant_id
        if not has_waited and not self._turns.may_run(tenant_id):
            await asyncio.sleep(0)

    def count(self, used_s: float) -> None:
        """Count a step that took so long."""
        self._used_s += used_s
        self._uncharged_s += used_s
        if self.tenant_id is not None:
            self._charge()

    def end(self) -> None:
        """Count what is left of a request that has ended."""
        self._charge()
        self._turns.release(self)  # the server does so for what it serves, once that is sent
        if self.tenant_id is not None:
            self._turns.observe(self.tenant_id, self._used_s)
        elif self._credentials is not None:  # they are not valid any more
            self._turns.remembered.pop(self._credentials, None)

    def _charge(self) -> None:
        self._turns.charge(self, self._uncharged_s)
        self._uncharged_s = 0.0


CURRENT: ContextVar[RequestTurns | None] = ContextVar("request_turns", default=None)
"""The turns of the current request; None outside of requests."""

CONNECTION: ContextVar[object] = ContextVar("connection", default=None)
"""The connection of the current request, for which the server holds heavy steps from the first byte
of the request to the last one of the answer."""


async def assign_to(tenant_id: str) -> None:
    """Assign the current request to an organisation, see `RequestTurns.assign`."""
    request = CURRENT.get()
    if request is not None and request.tenant_id != tenant_id:
        await request.assign(tenant_id)


class Stepwise(Awaitable[_Result]):
    """What `work` returns or raises. Each of its steps waits for its turn, and is counted.

    The task awaits what `work` awaits: cancellation, time limits and context variables stay as they
    are. Tasks that `work` creates take no turns.
    """

    def __init__(self, turns: LoopTurns, request: RequestTurns, work: Awaitable[_Result]) -> None:
        self._turns = turns
        self._request = request
        self._work = work

    def __await__(self) -> Generator[Any, Any, _Result]:
        """The steps, as asyncio's tasks take them."""
        turns, request, clock = self._turns, self._request, self._turns.clock
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            # A cancelled request does not wait: what it has taken is free the sooner.
            if thrown is None and request.is_attributed and not turns.may_run(request.group):
                waiter = turns.wait(request.group)
                try:
                    yield from waiter
                except BaseException as error:
                    turns.leave(request.group, waiter)
                    thrown = error
            began_at = clock()
            try:
                awaited = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: _Result = end.value
                return result
            finally:
                thrown = None  # it refers to this frame
                request.count(clock() - began_at)
            try:
                yield awaited
            except BaseException as error:
                thrown = error
