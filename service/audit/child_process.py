"""Start-up code of the server's child processes; few imports, so that they start quickly."""

import os
import signal
from multiprocessing import parent_process
from threading import Thread

from service.core.threads import BACKGROUND_NICENESS


def answer() -> None:
    """Do nothing: that a result arrives shows that the process runs."""


def prepare_process() -> None:
    """Ignore SIGINT and SIGTERM, which the server handles, and exit when the server is gone.

    Has the niceness of background work, so that the event loop's process goes first: measured with
    a flood of rows at two server processes, pages of others take half as long.
    """
    os.nice(BACKGROUND_NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    server = parent_process()
    if server is not None:
        server.join()
        os._exit(1)
