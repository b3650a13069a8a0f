"""Room for streams of live rows: so many at once, until the server ends."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from service.errors import TooManyStreams

PER_ORG_MAX: Final = 50
PER_SESSION_MAX: Final = 4
"""A browser keeps six connections to one server, and people want to go on clicking."""


class LivePlaces:
    """The streams of this process: an organisation and a session have so many places each."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._ending = asyncio.Event()

    @contextmanager
    def place(self, tenant_id: str, session_id: str | None) -> Iterator[None]:
        """Hold a place while the block lasts. Raises TooManyStreams."""
        bounds = {tenant_id: PER_ORG_MAX}
        if session_id is not None:
            bounds[session_id] = PER_SESSION_MAX
        if any(self._taken[key] >= most for key, most in bounds.items()):
            raise TooManyStreams
        self._taken.update(bounds.keys())
        try:
            yield
        finally:
            self._taken -= Counter(bounds.keys())  # what is down to nothing is forgotten

    async def pause(self, seconds: float) -> bool:
        """Wait, but not for long once the server ends; False from then on."""
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return True
        return False

    def end(self) -> None:
        """Let every stream end: who serves no more must not wait for them."""
        self._ending.set()
