"""How often somebody may try to sign in: bounded by address and in all, in bounded memory."""

from collections import OrderedDict
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from service.clock import Clock
from service.errors import TooManySignIns

WINDOW: Final = timedelta(minutes=1)
PER_ADDRESS_MAX: Final = 30
"""Steps of sign-ins, of which each takes two or three."""

TOTAL_MAX: Final = 1200
ADDRESSES_MAX: Final = 10_000
_IPV6_PREFIX: Final = 64
"""What one subscriber has of the IPv6 address space."""


class Attempts:
    """Counts steps of sign-ins in windows of a minute. Each process counts for itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = clock()
        self._total = 0
        self._by_address: OrderedDict[str, int] = OrderedDict()

    def admit(self, address: str | None) -> None:
        """Count one step from `address`. Raises TooManySignIns."""
        self._turn(self._clock())
        source = _source(address)
        count = self._by_address.pop(source, 0)
        self._by_address[source] = count + 1
        if len(self._by_address) > ADDRESSES_MAX:
            self._by_address.popitem(last=False)
        # Who is over their own bound must not use up everybody's.
        if count >= PER_ADDRESS_MAX or self._total >= TOTAL_MAX:
            raise TooManySignIns
        self._total += 1

    def _turn(self, now: datetime) -> None:
        if abs(now - self._began_at) >= WINDOW:
            self._began_at = now
            self._total = 0
            self._by_address.clear()


def _source(address: str | None) -> str:
    """Whom an address counts for; those that are not known, together."""
    if address is None:
        return ""
    found = ip_address(address)
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _IPV6_PREFIX), strict=False))
