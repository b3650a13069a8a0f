"""Limits on concurrent streams of live rows, and their end when the server stops."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from service.errors import TooManyStreams

PER_ORG_MAX: Final = 50
PER_SESSION_MAX: Final = 4
"""Browsers open six connections to a server, and other requests need some of them."""


class LivePlaces:
    """The streams of this process, limited for each organisation and each session."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._ending = asyncio.Event()

    @contextmanager
    def place(self, tenant_id: str, session_id: str | None) -> Iterator[None]:
        """Occupy a place during the block. Raises TooManyStreams."""
        bounds = {tenant_id: PER_ORG_MAX}
        if session_id is not None:
            bounds[session_id] = PER_SESSION_MAX
        # No await up to the update below: two streams cannot take the same last place.
        if any(self._taken[key] >= most for key, most in bounds.items()):
            raise TooManyStreams
        self._taken.update(bounds.keys())
        try:
            yield
        finally:
            self._taken -= Counter(bounds.keys())  # drops keys with a count of 0

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
