"""Threads for the event loop, which never waits for a disk or a long computation itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def new_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool of at most so many threads, which are named after it."""
    return ThreadPoolExecutor(threads, name)


async def in_thread(
    function: Callable[..., _Result], *arguments: object, pool: Executor | None = None
) -> _Result:
    """What `function` returns in a thread of `pool`, or of the event loop's own."""
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, run, function, *arguments)


async def run_uncancellable(function: Callable[..., _Result], *arguments: object) -> _Result:
    """As `in_thread`, but a caller that is cancelled waits until the thread has ended.

    For work on files that are then closed or removed.
    """
    running = asyncio.ensure_future(in_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    finally:
        # A second cancellation ends this wait and not the thread, which may still use the files.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])


def consume_exception(abandoned: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting the failure of work whose result is not wanted any more."""
    if not abandoned.cancelled():
        abandoned.exception()
