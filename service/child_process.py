"""What a process that the server starts runs first. It imports little, so that it starts soon."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread
from typing import Any


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


@contextmanager
def without_main() -> Iterator[None]:
    """Processes that are started within import no main module.

    They would import that of the server, which takes two seconds, for nothing: what they run is
    found by the name of its own module.
    """
    names: dict[str, Any] = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {
        name: names.pop(name) for name in ("__spec__", "__file__") if name in names
    }
    names["__spec__"] = None
    try:
        yield
    finally:
        names.update(hidden)
