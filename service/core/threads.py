"""Threads for the event loop, which never waits for a disk or a long computation itself."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")


BACKGROUND_NICENESS: Final = 10
"""What runs in the background gets about a tenth of the time of what else wants the processor.

A thread that waits for the processor may hold Python's lock, and the event loop then waits for it.
Measured with exports, groupings and audit pages of another organisation, also beside two processes
that use both cores, a page was quicker with 10 than with 5, or differed less than rounds did.
"""


def waited_s() -> float:
    """How long this thread has waited for a processor in its life; 0 outside of Linux."""
    try:
        _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) / 1e9


def new_pool(threads: int, name: str, niceness: int = 0) -> ThreadPoolExecutor:
    """A pool of at most so many threads, which are named after it and have this niceness at least.

    Threads that they start inherit it. Outside of Linux all threads of a process have the same.
    """
    return ThreadPoolExecutor(threads, name, initializer=_be_nice, initargs=(niceness,))


def _be_nice(niceness: int) -> None:
    if niceness and hasattr(os, "sched_setscheduler"):  # only Linux has niceness by thread
        thread = threading.get_native_id()
        # A server that was started with a higher one keeps it: to lower it takes a privilege.
        niceness = max(niceness, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)


async def in_thread(
    function: Callable[..., _Result], *arguments: object, pool: Executor | None = None
) -> _Result:
    """What `function` returns in a thread of `pool`, or of the event loop's own."""
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, run, function, *arguments)


async def run_uncancellable(
    function: Callable[..., _Result], *arguments: object, pool: Executor | None = None
) -> _Result:
    """As `in_thread`, but a caller that is cancelled waits until the thread has ended.

    For work on files that are then closed or removed.
    """
    running = asyncio.ensure_future(in_thread(function, *arguments, pool=pool))
    try:
        return await asyncio.shield(running)
    finally:
        # A second cancellation ends this wait and not the thread, which may still use the files.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        consume_exception(running)  # a caller that is cancelled does not get it


def consume_exception(abandoned: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting the failure of work whose result is not wanted any more."""
    if not abandoned.cancelled():
        abandoned.exception()
