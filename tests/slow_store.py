"""A proxy before an S3 server that delays each GET, and counts how often a client had to wait."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class SlowStore:
    """Counts of one proxy. `rounds` is how often GETs began while none was under way."""

    def __init__(self, server: str, delay_s: float) -> None:
        self.server = urlsplit(server)
        self.delay_s = delay_s
        self.endpoint = ""
        self.gets: list[str] = []
        self.rounds = 0
        self._under_way = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self, path: str) -> Iterator[None]:
        """Count a GET of an object, and delay it."""
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: SlowStore

    def _forward(self) -> None:
        is_object = self.command == "GET" and "?" not in self.path
        if not is_object:
            self._answer()
            return
        with self.store.counted(self.path):
            self._answer()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815 - as the base class wants

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length) if length else None
        connection = http.client.HTTPConnection(self.store.server.netloc, timeout=30)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        size = response.getheader("content-length") if self.command == "HEAD" else len(content)
        self.send_header("content-length", str(size))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def slow_store(server: str, delay_s: float) -> Iterator[SlowStore]:
    """A proxy to `server` that runs during the block."""
    store = SlowStore(server, delay_s)
    handler = type("Handler", (_Handler,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        proxy.daemon_threads = True
        store.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            proxy.shutdown()
            thread.join()
