"""How long a server keeps small requests waiting while it takes in documents of 20 MB."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from benchmarks.client import Client

TRICKLE_S: Final = 0.002


class Trickle:
    """Tiny requests, one after the other, and the longest of them in milliseconds."""

    longest_ms = 0.0


@contextmanager
def trickle(url: str, headers: dict[str, str]) -> Iterator[Trickle]:
    """Ask `url` over a connection of its own for as long as the block lasts."""
    parts, done, seen = urlsplit(url), threading.Event(), Trickle()

    def ask() -> None:
        with Client(parts.port or 0, headers) as client:
            while not done.wait(TRICKLE_S):
                began_at = time.perf_counter()
                assert client.get(parts.path).status == 200
                seen.longest_ms = max(seen.longest_ms, (time.perf_counter() - began_at) * 1000)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield seen
    finally:
        done.set()
        asking.join()
