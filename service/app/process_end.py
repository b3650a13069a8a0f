"""How a process of `serve` ends: at a signal, in a bounded time, and without an end of its own."""

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

import structlog

KILL_AFTER_S: Final = 10.0
"""How long after the grace of their requests processes may take to close what they hold."""

_log = structlog.get_logger(__name__)


def on_signals(handler: Callable[..., object] | signal.Handlers) -> None:
    """Have SIGTERM and SIGINT handled by `handler` from now on."""
    if threading.current_thread() is threading.main_thread():  # others cannot, and need not
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handler)


def ignore_signals() -> None:
    """The process is ending: the next signal must not end it with a code of its own.

    SIG_IGN, and no function: Python removes handlers written in Python before it ends.
    """
    on_signals(signal.SIG_IGN)


def end_after(seconds: float) -> None:
    """End the process in so many seconds, if it is there then: a thread may wait for a bucket."""

    def end() -> None:
        _log.error("stop_cut_short", after_s=seconds)
        os._exit(0)

    def cancel() -> None:
        timer.cancel()
        timer.join()  # what a thread refers to is never released, which libraries report

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    atexit.register(cancel)  # called once the other threads have ended


def end_now(code: int = 0) -> None:
    """End this process, in which all is closed and durable.

    Threads of native libraries that still wait for a bucket can crash an interpreter that takes
    itself down, and the exit code would not be 0.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
