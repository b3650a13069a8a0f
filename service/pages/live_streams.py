"""Limits on concurrent streams of live rows, what they share, and their end at the server's."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from service.core.errors import Busy

PER_ORG_MAX: Final = 50
PER_SESSION_MAX: Final = 4
"""Browsers open six connections to a server, and other requests need some of them."""


ROWS_PER_S: Final = 200
"""Rows rendered for one organisation, on average: they keep the event loop busy for a twentieth of
the time. Its pages are told of further ones, and do not show them."""

TOO_MANY_STREAMS: Final = Busy.of(
    "too many pages show live rows at once: close one of them", retry_after_s=30
)

_Shared = TypeVar("_Shared")


class LiveStreams:
    """The streams of this process, limited for each organisation and each session or key."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, Any] = {}
        self._users: Counter[Hashable] = Counter()
        self._rendered: dict[str, tuple[float, float]] = {}
        """By tenant id: rows that may be rendered now, and as of when (monotonic clock)."""

        self._taken: Counter[str] = Counter()
        self._ending = asyncio.Event()

    @contextmanager
    def slot(self, tenant_id: str, caller: str) -> Iterator[None]:
        """Count one stream of `caller` during the block: a session or key, empty for the operator.

        Raises TOO_MANY_STREAMS.
        """
        bounds = {tenant_id: PER_ORG_MAX}
        if caller:
            bounds[caller] = PER_SESSION_MAX
        # No await up to the update below: two streams cannot take the same last slot.
        if any(self._taken[key] >= most for key, most in bounds.items()):
            raise TOO_MANY_STREAMS
        self._taken.update(bounds.keys())
        try:
            yield
        finally:
            self._taken -= Counter(bounds.keys())  # drops keys with a count of 0

    @contextmanager
    def shared(self, view: Hashable, make: Callable[[], _Shared]) -> Iterator[_Shared]:
        """What the streams of one view share: made for the first, dropped after the last."""
        shared = self._shared.get(view)
        if shared is None:
            shared = self._shared[view] = make()
        self._users[view] += 1
        try:
            yield shared
        finally:
            self._users -= Counter([view])  # drops a count of 0
            if view not in self._users:
                del self._shared[view]

    def may_render(self, tenant_id: str, rows: int) -> bool:
        """Whether so many more rows of the organisation may be rendered now; counts them if so."""
        now = time.monotonic()
        left, since = self._rendered.get(tenant_id, (float(ROWS_PER_S), now))
        left = min(ROWS_PER_S, left + (now - since) * ROWS_PER_S)
        is_allowed = rows <= left
        self._rendered[tenant_id] = (left - rows if is_allowed else left, now)
        return is_allowed

    async def pause(self, seconds: float) -> bool:
        """Wait, or return False at once when the server is stopping."""
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return True
        return False

    def end(self) -> None:
        """End all streams, so that the server's shutdown does not wait for them."""
        self._ending.set()
