"""A proxy before an S3 server that delays each GET, and counts how often a client had to wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.store_proxy import Answer, StoreProxy, StoreRequest, store_proxy


class SlowStore:
    """Counts of one proxy. `rounds` is how often GETs began while none was under way."""

    def __init__(self, proxy: StoreProxy, delay_s: float) -> None:
        self.delay_s = delay_s
        self.endpoint = proxy.endpoint
        self.gets: list[str] = []
        self.rounds = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def respond(self, request: StoreRequest) -> Answer:
        """The server's answer; to a GET of an object after a while."""
        if request.method != "GET" or "?" in request.path:
            return request.forward()
        with self._counted(request.path):
            return request.forward()

    @contextmanager
    def _counted(self, path: str) -> Iterator[None]:
        with self._lock:
            self.gets.append(path)
            self.rounds += self._under_way == 0
            self._under_way += 1
        try:
            time.sleep(self.delay_s)
            yield
        finally:
            with self._lock:
                self._under_way -= 1


@contextmanager
def slow_store(server: str, delay_s: float) -> Iterator[SlowStore]:
    """A proxy to `server` that runs during the block."""
    with store_proxy(server) as proxy:
        store = SlowStore(proxy, delay_s)
        proxy.respond = store.respond
        yield store
