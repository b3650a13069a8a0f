"""A TCP forwarder whose clients do not learn that the server has hung up."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

_CHUNK: Final = 64 * 1024


class HalfOpenForwarder:
    """Listens on `port` of 127.0.0.1 and passes bytes on to and from `target_port`.

    A server's hang-up is not passed on, as by a network that loses the message.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._sockets = ExitStack()
        self._listening = self._sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port: int = self._listening.getsockname()[1]
        self._answering: list[threading.Thread] = []
        self._are_lost = threading.Event()
        """For the connections of now; those of later have another one."""
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for_hang_ups(self) -> None:
        """Return once the server has hung up on every connection."""
        for thread in self._answering:
            thread.join()

    def lose_connections(self) -> None:
        """Discard from now on what either side sends on a connection that is open now."""
        self._are_lost.set()
        self._are_lost = threading.Event()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends a thread that waits in accept()
        self._sockets.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client = self._sockets.enter_context(self._listening.accept()[0])
                server = self._sockets.enter_context(
                    socket.create_connection(("127.0.0.1", self._target_port))
                )
                self._start(_pass_on_to_end, client, server)
                self._answering.append(self._start(_pass_on, server, client))

    def _start(
        self, work: Callable[..., None], source: socket.socket, target: socket.socket
    ) -> threading.Thread:
        arguments = (source, target, self._are_lost)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread


def _pass_on_to_end(source: socket.socket, target: socket.socket, is_lost: threading.Event) -> None:
    """Pass on what `source` sends, and its end: the server must release what it holds."""
    _pass_on(source, target, is_lost)
    if not is_lost.is_set():
        with suppress(OSError):  # gone already
            target.shutdown(socket.SHUT_WR)


def _pass_on(source: socket.socket, target: socket.socket, is_lost: threading.Event) -> None:
    """Pass on what `source` sends, but not its end."""
    with suppress(OSError):  # closed
        while chunk := source.recv(_CHUNK):
            if not is_lost.is_set():
                with suppress(OSError):  # the other end is gone: go on until this one is
                    target.sendall(chunk)


@contextmanager
def half_open(target_port: int) -> Iterator[HalfOpenForwarder]:
    """A forwarder to `target_port` until the end of the block."""
    forwarder = HalfOpenForwarder(target_port)
    try:
        yield forwarder
    finally:
        forwarder.close()
