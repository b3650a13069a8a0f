"""HTTP/2: what happens to one request is nothing to the others on its connection."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded

from tests.conftest import bindings_path
from tests.processes.homes import Home

pytestmark = pytest.mark.slow

LENGTH = 40_000
PIECE = b"x" * 10_000


class Connected:
    """One connection of a client that says piece by piece what it has to say."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self._socket = socket.create_connection(address, timeout=10)
        self.h2.initiate_connection()
        self.send()

    def send(self) -> None:
        """Send what was said since."""
        self._socket.sendall(self.h2.data_to_send())

    def begin(self, method: str, path: str, *more: tuple[str, str], ends: bool) -> int:
        """Begin a request; its stream."""
        stream = self.h2.get_next_available_stream_id()
        fixed = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "here")]
        self.h2.send_headers(stream, [*fixed, *more], end_stream=ends)
        self.send()
        return stream

    def status(self, stream: int) -> str:
        """The status of the answer to `stream`, once all of it has come."""
        said = ""
        while True:
            received = self._socket.recv(65536)
            assert received, "the server has closed the connection"
            for event in self.h2.receive_data(received):
                assert not isinstance(event, ConnectionTerminated)
                if isinstance(event, ResponseReceived) and event.stream_id == stream:
                    said = dict(event.headers)[b":status"].decode()
                if isinstance(event, StreamEnded) and event.stream_id == stream:
                    return said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def connected(home: Home) -> Iterator[Connected]:
    """A connection to a server."""
    with home.serve().client() as client:
        url = urlsplit(str(client.base_url))
    assert url.hostname is not None
    assert url.port is not None
    connection = Connected((url.hostname, url.port))
    yield connection
    connection.close()


def test_a_body_that_comes_after_its_refusal_ends_no_other_request(connected: Connected) -> None:
    """A stranger's request is refused unread; others share its connection, as behind a proxy."""
    for _ in range(3):
        length = ("content-length", str(LENGTH))
        refused = connected.begin("POST", bindings_path(), length, ends=False)
        assert connected.status(refused) == "401"
        for number in range(LENGTH // len(PIECE)):
            is_last = number == LENGTH // len(PIECE) - 1
            connected.h2.send_data(refused, PIECE, end_stream=is_last)
            connected.send()

        assert connected.status(connected.begin("GET", "/healthz", ends=True)) == "200"
