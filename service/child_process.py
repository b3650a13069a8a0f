"""What a process that the server starts runs first. It imports little, so that it starts soon."""

import os
import signal
from multiprocessing import parent_process
from threading import Thread


def answer() -> None:
    """Show that the process runs."""


def prepare_process() -> None:
    """Leave it to the server to end this process, and end when the server is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    server = parent_process()
    if server is not None:
        server.join()
        os._exit(1)
