"""Work in threads, for the event loop."""

import asyncio
import gc
import os
import sys
import threading

import pytest

from service.core.threads import new_pool, run_uncancellable, waited_s
from tests.polling import HANG_S


def test_a_thread_knows_how_long_it_waited_for_a_processor():
    """Never less than before; 0 where the system does not tell."""
    first, again = waited_s(), waited_s()
    assert 0 <= first <= again


async def test_a_caller_that_is_cancelled_twice_waits_for_the_thread():
    """What the thread works on must not be removed under it."""
    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        may_end.wait(HANG_S)
        has_ended.set()

    calling = asyncio.create_task(run_uncancellable(work))
    await has_begun.wait()
    for _ in range(2):
        calling.cancel()
        await asyncio.sleep(0.01)
        assert not calling.done()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert has_ended.is_set()


async def test_a_failure_after_the_caller_was_cancelled_is_not_reported():
    """Such as a missing file: it is no fault, and the log would say an error."""
    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    may_end = threading.Event()
    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    def work() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        may_end.wait(HANG_S)
        raise FileNotFoundError

    calling = asyncio.create_task(run_uncancellable(work))
    await has_begun.wait()
    calling.cancel()
    await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.wait([calling])
    assert calling.cancelled()
    del calling
    gc.collect()  # asyncio reports when it releases a task

    assert reported == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has niceness by thread")
def test_threads_of_a_nicer_server_stay_nice():
    """To lower it takes a privilege, without which no thread would begin."""
    niceness = []

    def start() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with new_pool(1, "nice", 10) as pool:
            niceness.append(pool.submit(_niceness).result())

    starting = threading.Thread(target=start)
    starting.start()
    starting.join()

    assert niceness == [19]


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
