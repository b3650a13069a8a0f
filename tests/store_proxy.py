"""A proxy before an S3 server: wrong, late or no answers to the requests that a test chooses."""

import http.client
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.polling import HANG_S

_FRAMING = frozenset({"transfer-encoding", "content-length", "expect"})
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Request:
    """What a client asks for; `path` has the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.path

    @property
    def is_write(self) -> bool:
        """Whether it changes the bucket."""
        return self.method in {"PUT", "POST", "DELETE"}

    @property
    def is_of_metadata(self) -> bool:
        """Whether it is about the own files of an open table."""
        return "_delta_log" in self.path or "_countersign%2Flake" in self.path.replace("/", "%2F")


@dataclass(frozen=True)
class Answer:
    """What the client gets. `length` is the length that is stated; None: the body's.

    After the body, or `sent` bytes of it, the connection is kept (`end` is ""), closed, reset, or
    stalled until the proxy ends; with `is_endless` the body is repeated until the client closes.
    """

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    sent: int | None = None
    end: str = ""
    is_endless: bool = False


Fault = Callable[[Request, Callable[[], Answer]], Answer]
"""The answer to a request; its second argument asks the server."""


class StoreProxy:
    """A running proxy. `fault` answers, in a thread for each request; None: the server does."""

    def __init__(self, server: str) -> None:
        self.server = urlsplit(server)
        self.endpoint = ""
        self.fault: Fault | None = None
        self.requests: list[Request] = []
        self.sent_bytes = 0
        self.ended = threading.Event()

    def ask(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self.server.netloc, timeout=HANG_S)
        try:
            headers = {n: v for n, v in request.headers.items() if n.lower() not in _FRAMING}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            body = response.read()
            answered = {n: v for n, v in response.getheaders() if n.lower() not in _HOP_BY_HOP}
            stated = response.getheader("content-length")
            length = int(stated) if request.method == "HEAD" and stated else None
            return Answer(response.status, body, answered, length)
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets: the second waits for 40 ms
    proxy: StoreProxy

    def _serve(self) -> None:
        request = Request(self.command, self.path, dict(self.headers), self._body())
        self.proxy.requests.append(request)
        fault = self.proxy.fault
        with suppress(ConnectionError, TimeoutError):
            if fault is None:
                self._send(self.proxy.ask(request))
            else:
                self._send(fault(request, lambda: self.proxy.ask(request)))

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815 - as the base class wants

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

    def _send(self, answer: Answer) -> None:
        if answer.status == 0:  # none at all
            self._end(answer)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if not answer.is_endless:
            stated = len(answer.body) if answer.length is None else answer.length
            self.send_header("content-length", str(stated))
        self.end_headers()
        if self.command != "HEAD":
            self._write(answer.body[: answer.sent])
        while answer.is_endless and not self.proxy.ended.is_set():
            self._write(answer.body)
        self._end(answer)

    def _write(self, content: bytes) -> None:
        self.wfile.write(content)
        self.proxy.sent_bytes += len(content)

    def _end(self, answer: Answer) -> None:
        if not answer.end:
            return
        self.close_connection = True
        self.wfile.flush()
        if answer.end == "stall":
            self.proxy.ended.wait(HANG_S)
        if answer.end == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        # The base class would send what is left in order.
        self.connection.shutdown(socket.SHUT_RD)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def shutdown_request(self, request: Any) -> None:
        """Close without the orderly end, which would hide a reset."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def store_proxy(server: str) -> Iterator[StoreProxy]:
    """A proxy to `server` that runs during the block."""
    proxy = StoreProxy(server)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as listener:
        proxy.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            listener.shutdown()
            thread.join()


class SlowStore:
    """A proxy that delays each GET of an object, and counts how often a client had to wait.

    `rounds` is how often GETs began while none was under way.
    """

    def __init__(self, proxy: StoreProxy, delay_s: float) -> None:
        self.delay_s = delay_s
        self.endpoint = proxy.endpoint
        self.gets: list[str] = []
        self.rounds = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def delayed(self, request: Request, ask: Callable[[], Answer]) -> Answer:
        """The server's answer; to a GET of an object after a while."""
        if request.method != "GET" or "?" in request.path:
            return ask()
        with self._counted(request.path):
            return ask()

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
    """A slow proxy to `server` that runs during the block."""
    with store_proxy(server) as proxy:
        store = SlowStore(proxy, delay_s)
        proxy.fault = store.delayed
        yield store
