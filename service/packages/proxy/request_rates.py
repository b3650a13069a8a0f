"""Bounds how many requests each organisation sends to each registry, and spares a busy registry.

A registry knows only the address of this service. So what it refuses to one organisation that asks
for very many names, it would refuse to all.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from service.core.errors import RegistryLimited, TooManyRegistryRequests
from service.packages.proxy.waiting_room import Holder

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

        Raises RegistryLimited while the organisation is paused, and TooManyRegistryRequests.
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
            raise TooManyRegistryRequests(
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
