"""A proxy before an S3 server that gives wrong answers to the requests a test chooses."""

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.polling import HANG_S

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.path


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

    def with_(self, **changes: Any) -> "Answer":
        return replace(self, **changes)


Fault = Callable[[Request, Callable[[], Answer]], Answer]
"""The answer to a request; its second argument asks the server."""


class FaultyStore:
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
            connection.request(request.method, request.path, request.body, request.headers)
            response = connection.getresponse()
            body = response.read()
            headers = {n: v for n, v in response.getheaders() if n.lower() not in _HOP_BY_HOP}
            stated = response.getheader("content-length")
            length = int(stated) if request.method == "HEAD" and stated else None
            return Answer(response.status, body, headers, length)
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FaultyStore

    def _serve(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length) if length else None
        request = Request(self.command, self.path, dict(self.headers), body)
        self.store.requests.append(request)
        fault = self.store.fault
        with suppress(ConnectionError, TimeoutError):
            if fault is None:
                self._send(self.store.ask(request))
            else:
                self._send(fault(request, lambda: self.store.ask(request)))

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815 - as the base class wants

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
        while answer.is_endless and not self.store.ended.is_set():
            self._write(answer.body)
        self._end(answer)

    def _write(self, content: bytes) -> None:
        self.wfile.write(content)
        self.store.sent_bytes += len(content)

    def _end(self, answer: Answer) -> None:
        if not answer.end:
            return
        self.close_connection = True
        self.wfile.flush()
        if answer.end == "stall":
            self.store.ended.wait(HANG_S)
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

    def handle_error(self, *_: Any) -> None:
        """Print nothing: clients close connections."""


@contextmanager
def faulty_store(server: str) -> Iterator[FaultyStore]:
    store = FaultyStore(server)
    handler = type("Handler", (_Handler,), {"store": store})
    with _Server(("127.0.0.1", 0), handler) as proxy:
        store.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield store
        finally:
            store.ended.set()
            proxy.shutdown()
            thread.join()
