"""Rate limit of sign-ins, per address and in total, in bounded memory."""

from collections import OrderedDict
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from service.access.refusals import TOO_MANY_SIGN_INS
from service.core.clock import Clock

WINDOW: Final = timedelta(minutes=1)
PER_ADDRESS_MAX: Final = 30
"""Steps of sign-ins; each sign-in has two or three."""

TOTAL_MAX: Final = 1200
DEVICE_POLLS_PER_ADDRESS_MAX: Final = 240
"""Polls of command lines that wait for approval: each polls every 5 seconds."""

DEVICE_POLLS_MAX: Final = 6000
ADDRESSES_MAX: Final = 10_000
_IPV6_PREFIX: Final = 64
"""The prefix assigned to one subscriber."""


class Attempts:
    """Counts steps of sign-ins in windows of a minute. Each process has its own count."""

    def __init__(
        self, clock: Clock, per_address_max: int = PER_ADDRESS_MAX, total_max: int = TOTAL_MAX
    ) -> None:
        self._clock = clock
        self._per_address_max = per_address_max
        self._total_max = total_max
        self._began_at = clock()
        self._total = 0
        self._by_address: OrderedDict[str, int] = OrderedDict()

    def count(self, address: str | None) -> None:
        """Count one step from `address`. Raises TOO_MANY_SIGN_INS."""
        self._turn(self._clock())
        source = _source(address)
        count = self._by_address.pop(source, 0)
        self._by_address[source] = count + 1
        if len(self._by_address) > ADDRESSES_MAX:
            # The address unused for longest: one that keeps trying stays counted.
            self._by_address.popitem(last=False)
        # An address beyond its own limit must not use up the limit of all.
        if count >= self._per_address_max or self._total >= self._total_max:
            raise TOO_MANY_SIGN_INS
        self._total += 1

    def _turn(self, now: datetime) -> None:
        # `abs`, because a clock that was set back must not prolong a window.
        if abs(now - self._began_at) >= WINDOW:
            self._began_at = now
            self._total = 0
            self._by_address.clear()


def _source(address: str | None) -> str:
    """The key under which an address is counted; unknown addresses share one."""
    if address is None:
        return ""
    parsed = ip_address(address)
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))
