"""At most one piece of work at a time per key, shared by all callers that ask meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class SingleFlight(Generic[_Result]):
    """Runs work by key; the work must end by itself in bounded time."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[_Result]] = {}

    async def run(self, key: Hashable, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """The result of `work`, or of the work already running for `key`; raises what that raises.

        Cancelling a caller does not cancel the work: others wait for it, and the next caller would
        only start it again.
        """
        # Without the shield, one client that disconnects would fail the requests of all others.
        return await asyncio.shield(self.start(key, work))

    def running(self, key: Hashable) -> asyncio.Task[_Result] | None:
        """The work that is running for `key`, to be awaited behind a shield."""
        return self._running.get(key)

    def start(self, key: Hashable, work: Callable[[], Awaitable[_Result]]) -> asyncio.Task[_Result]:
        """The work that is running for `key`, which is `work` if there was none."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(_await(work))
            task.add_done_callback(lambda ended: self._drop(key, ended))
        return task

    async def close(self) -> None:
        """End all work."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # asyncio would report it as unretrieved if all callers are gone


async def _await(work: Callable[[], Awaitable[_Result]]) -> _Result:
    return await work()
