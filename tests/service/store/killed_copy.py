"""A copy that is killed after a number of batches: `python -m … SOURCE TARGET NUMBER`."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from service.store.database_copy import copy_all
from service.store.engine_factory import create_engines

_shown = count()


@contextmanager
def shown_until_killed(what: str) -> Iterator[Callable[[int, int], None]]:
    """Kill this process when progress is shown for the NUMBERth time."""

    def show(done: int, total: int) -> None:
        if next(_shown) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

    yield show


async def main() -> None:
    """Copy."""
    source, target = create_engines(sys.argv[1], 10), create_engines(sys.argv[2], 10)
    await copy_all(source, target, shown_until_killed)
    await source.dispose()
    await target.dispose()


if __name__ == "__main__":
    asyncio.run(main())
