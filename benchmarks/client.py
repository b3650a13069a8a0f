"""A cheap HTTP/1.1 client: one persistent connection over loopback and minimal parsing.

A full HTTP library spends a millisecond on a request and its response, which is more than what is
measured here.
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

_PIECE_BYTES: Final = 1 << 18
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; `head` is the status line and the headers as they were sent."""

    status: int
    head: bytes
    body: bytes


class Client:
    """One connection to a server on this machine, for one request after the other.

    `headers` are sent with every request. When the server announces that it closes the connection,
    which it does after a number of requests, a new one is opened. Raises ConnectionError if it
    closes without announcement.
    """

    def __init__(self, port: int, headers: Mapping[str, str], timeout_s: float = 60.0) -> None:
        self._port, self._timeout_s = port, timeout_s
        self._socket = self._connect()
        lines = {"host": f"127.0.0.1:{port}", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def get(self, target: str) -> Answer:
        """The response to a GET of `target`, a path with its query."""
        return self.ask("GET", target)

    def ask(self, method: str, target: str, body: bytes = b"", kind: str = "") -> Answer:
        """The response to any request but a HEAD; `kind` is the content type of `body`."""
        about = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n" if kind else ""
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}{about}\r\n"
        self._socket.sendall(head.encode() + body)
        return self._answer()

    def _connect(self) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self._port), self._timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _answer(self) -> Answer:
        received = bytearray()
        while (end := received.find(_END)) < 0:
            self._receive(received)
        head = bytes(received[:end]).lower()
        del received[: end + len(_END)]
        if b"\r\ntransfer-encoding: chunked" in head:
            body = self._chunks(received)
        else:
            _, _, after = head.partition(b"\r\ncontent-length:")
            body = self._exactly(received, int(after.split(b"\r\n", 1)[0] or 0))
        if b"\r\nconnection: close" in head:
            self._socket.close()
            self._socket = self._connect()
        return Answer(int(head[9:12]), head, body)

    def _chunks(self, received: bytearray) -> bytes:
        """A chunked body without extensions or trailers, as servers send it."""
        body = bytearray()
        while True:
            while (end := received.find(b"\r\n")) < 0:
                self._receive(received)
            size = int(received[:end], 16)
            del received[: end + 2]
            body += self._exactly(received, size + 2)[:size]
            if size == 0:
                return bytes(body)

    def _exactly(self, received: bytearray, size: int) -> bytes:
        while len(received) < size:
            self._receive(received)
        taken = bytes(received[:size])
        del received[:size]
        return taken

    def _receive(self, received: bytearray) -> None:
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            raise ConnectionError("the server hung up")
        received += piece


@dataclass(frozen=True, slots=True)
class Times:
    """The durations of many runs, sorted, in milliseconds."""

    sorted_ms: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """The time within which `percent` of the runs ended (the nearest rank)."""
        return self.sorted_ms[
            min(len(self.sorted_ms) - 1, int(len(self.sorted_ms) * percent / 100))
        ]

    def __str__(self) -> str:
        return f"p50 {self.percentile(50):.2f} ms, p99 {self.percentile(99):.2f} ms"


def timed(work: Callable[[], object], rounds: int) -> Times:
    """The times of `rounds` runs of `work`, one after the other."""
    times = []
    for _ in range(rounds):
        began_at = time.perf_counter()
        work()
        times.append((time.perf_counter() - began_at) * 1000)
    return Times(tuple(sorted(times)))
