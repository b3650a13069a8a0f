"""A proxy before an S3 server: passes requests on, and lets a test answer or stop some itself."""

import http.client
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tests.polling import HANG_S

_FRAMING = frozenset({"transfer-encoding", "content-length", "expect"})
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is sent. `announced` is the length of the whole content, if that is cut."""

    status: int
    content: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    announced: int | None = None


@dataclass
class StoreRequest:
    """A request of a client; `path` has the query. `forward` sends it to the server."""

    method: str
    path: str
    forward: Callable[[], Answer]

    @property
    def is_of_metadata(self) -> bool:
        """Whether it is about the own files of an open table."""
        return "_delta_log" in self.path or "_countersign%2Flake" in self.path.replace("/", "%2F")

    @property
    def is_write(self) -> bool:
        """Whether it changes the bucket."""
        return self.method in {"PUT", "POST", "DELETE"}


Respond = Callable[[StoreRequest], Answer]


class StoreProxy:
    """A running proxy. `respond` answers; it is called in a thread for each request."""

    def __init__(self, server: str) -> None:
        self.server: SplitResult = urlsplit(server)
        self.endpoint = ""
        self.respond: Respond = pass_on
        self.is_closing = threading.Event()


def pass_on(request: StoreRequest) -> Answer:
    """The server's own answer."""
    return request.forward()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: StoreProxy

    def _handle(self) -> None:
        body = self._body()
        request = StoreRequest(self.command, self.path, lambda: self._forward(body))
        self._send(self.proxy.respond(request))

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815 - as the base class wants

    def _body(self) -> bytes | None:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(self.headers.get("content-length", 0))
            return self.rfile.read(length) if length else None
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _forward(self, body: bytes | None) -> Answer:
        connection = http.client.HTTPConnection(self.proxy.server.netloc, timeout=HANG_S)
        try:
            names = {
                name: value for name, value in self.headers.items() if name.lower() not in _FRAMING
            }
            connection.request(self.command, self.path, body, names)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        headers = [pair for pair in response.getheaders() if pair[0].lower() not in _HOP_BY_HOP]
        length = int(response.getheader("content-length") or 0)
        announced = length if self.command == "HEAD" else None
        return Answer(response.status, content, tuple(headers), announced)

    def _send(self, answer: Answer) -> None:
        size = len(answer.content) if answer.announced is None else answer.announced
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("content-length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(answer.content)
        self.wfile.flush()
        if len(answer.content) < size:
            self.proxy.is_closing.wait()
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def store_proxy(server: str) -> Iterator[StoreProxy]:
    """A proxy to `server` that runs during the block."""
    proxy = StoreProxy(server)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Listener(("127.0.0.1", 0), handler) as listener:
        proxy.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.is_closing.set()
            listener.shutdown()
            thread.join()
