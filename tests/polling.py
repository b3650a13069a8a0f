"""Waiting for something that nothing announces."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

HANG_S: Final = 120.0
"""After so long a test says what it waits for in vain: it bounds a hang.

What is waited for takes a second at most, on a machine that may be busy with anything else. A test
of how long something takes does not wait for it: it gives the service a limit of its own.
"""

_Result = TypeVar("_Result")


async def until(is_so: Callable[[], bool]) -> None:
    """Return once `is_so()`; the test's own timeout ends a wait in vain."""
    while not is_so():  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.001)


def eventually(
    holds: Callable[[], _Result], what: str, deadline_s: float = HANG_S, every_s: float = 0.05
) -> _Result:
    """The first true answer of `holds`; fails, naming `what`, when there is none in time."""
    ends_at = time.monotonic() + deadline_s
    while not (answer := holds()):
        assert time.monotonic() < ends_at, f"not within {deadline_s} s: {what}"
        time.sleep(every_s)
    return answer
