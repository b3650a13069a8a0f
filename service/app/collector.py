"""Python's garbage collector in a process that serves: it runs where no request waits for it."""

import asyncio
import gc
import time
from typing import Final

NEW_OBJECTS: Final = 10_000
"""So many new objects begin a collection, of some 4 ms. With Python's 700 a mix of 16 clients was
interrupted 25 times a second, by the few full collections for up to 14 ms."""

_SECOND: Final = 1
_FULL: Final = 300
"""Collections of the generation before that begin one of the second, and a full one. With Python's
10 and 10, one of the second looked through all that a large answer consists of, for 40 ms."""

LOOK_S: Final = 1.0
QUIET_SHARE: Final = 0.05
"""A second is quiet if the process computed for less of it than this."""


def begin_collecting() -> None:
    """Collect from now on, but never what exists: it lives as long as the process.

    To look through it would take 80 ms each time, in which no request runs.
    """
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, _SECOND, _FULL)
    gc.enable()


async def collect_when_quiet() -> None:
    """Collect after each quiet second that follows a busy one, until cancelled."""
    is_due = True  # a start leaves objects behind
    while True:
        began = time.process_time()
        await asyncio.sleep(LOOK_S)
        if time.process_time() - began >= QUIET_SHARE * LOOK_S:
            is_due = True
        elif is_due:
            gc.collect()
            is_due = False
