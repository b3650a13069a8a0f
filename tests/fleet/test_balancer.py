"""The balancer of the fleet: connections in turn, and none to a node that is gone."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fleet.balancer import Balancer
from tests.polling import HANG_S


def read_all(connection: socket.socket) -> bytes:
    """What is sent until the other side ends."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


class EchoNode:
    """Answers each connection with its name and what was sent, once the client has ended."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                sent = read_all(connection)
                connection.sendall(self._name + b":" + sent)


def ask(port: int, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(message)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


@pytest.fixture
def nodes() -> Iterator[list[EchoNode]]:
    with ExitStack() as stack:
        made = [EchoNode(name) for name in (b"a", b"b", b"c")]
        for node in made:
            stack.callback(_close_quietly, node)
        yield made


def _close_quietly(node: EchoNode) -> None:
    try:
        node.close()
    except OSError:
        return


@pytest.fixture
def balancer(nodes: list[EchoNode]) -> Iterator[Balancer]:
    made = Balancer([node.port for node in nodes])
    yield made
    made.close()


def test_connections_go_to_the_nodes_in_turn(balancer: Balancer) -> None:
    assert [ask(balancer.port, b"x") for _ in range(4)] == [b"a:x", b"b:x", b"c:x", b"a:x"]


def test_long_messages_are_passed_on_whole(balancer: Balancer) -> None:
    message = bytes(range(256)) * 10_000

    assert ask(balancer.port, message) == b"a:" + message


def test_a_node_that_is_gone_is_passed_over(balancer: Balancer, nodes: list[EchoNode]) -> None:
    nodes[1].close()

    assert [ask(balancer.port, b"x") for _ in range(3)] == [b"a:x", b"c:x", b"c:x"]


def test_without_any_node_the_connection_is_closed(
    balancer: Balancer, nodes: list[EchoNode]
) -> None:
    for node in nodes:
        node.close()

    assert ask(balancer.port, b"") == b""
