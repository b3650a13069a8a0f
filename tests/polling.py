"""Waiting for something that nothing announces."""

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], bool]) -> None:
    """Return once `is_so()`; the test's own timeout ends a wait in vain."""
    while not is_so():  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.001)
