"""HTTP/2: what happens to one request is nothing to the others on its connection."""

import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, bindings_path
from tests.polling import HANG_S
from tests.processes.exports import EXPORT_PATH
from tests.processes.homes import Home, Server, all_entries, eventually

pytestmark = pytest.mark.slow

LENGTH = 40_000
PIECE = b"x" * 10_000


class Connected:
    """One connection of a client that says piece by piece what it has to say."""

    def __init__(self, address: tuple[str, int]) -> None:
        # A client whose mistakes nothing holds back.
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._socket = socket.create_connection(address, timeout=HANG_S)
        self.h2.initiate_connection()
        self.send()

    def send(self) -> None:
        """Send what was said since."""
        self._socket.sendall(self.h2.data_to_send())

    def begin(self, method: str, path: str, *more: tuple[str, str], ends: bool) -> int:
        """Begin a request; its stream."""
        stream = self.h2.get_next_available_stream_id()
        fixed = [(":method", method), (":authority", "here")]
        if path:  # a CONNECT has none, and then no scheme either
            fixed += [(":path", path), (":scheme", "http")]
        self.h2.send_headers(stream, [*fixed, *more], end_stream=ends)
        self.send()
        return stream

    def status(self, stream: int) -> str:
        """The status of the answer to `stream`, once all of it has come."""
        said = ""
        for event in self._events():
            if isinstance(event, ResponseReceived) and event.stream_id == stream:
                said = dict(event.headers)[b":status"].decode()
            if isinstance(event, StreamEnded) and event.stream_id == stream:
                break
        return said

    def reset(self, stream: int) -> ErrorCodes:
        """The code with which the server ends `stream` alone."""
        resets = (event for event in self._events() if isinstance(event, StreamReset))
        codes = (event.error_code for event in resets if event.stream_id == stream)
        return ErrorCodes(next(codes))

    def is_closed(self) -> bool:
        """True once the server has closed the connection, having said nothing but HTTP/2."""
        while received := self._socket.recv(65536):
            self.h2.receive_data(received)
        return True

    def _events(self) -> Iterator[Event]:
        """What comes on the connection, which the server must not end."""
        while True:
            received = self._socket.recv(65536)
            assert received, "the server has closed the connection"
            for event in self.h2.receive_data(received):
                assert not isinstance(event, ConnectionTerminated)
                yield event

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def connected(home: Home) -> Iterator[Connected]:
    """A connection to a server."""
    connection = connection_to(home.serve())
    yield connection
    connection.close()


def connection_to(server: Server) -> Connected:
    return Connected(("127.0.0.1", server.port))


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


@pytest.mark.parametrize(("method", "path"), [("GET", "/caf\u00e9"), ("CONNECT", "")])
def test_a_request_that_cannot_be_read_ends_itself_alone(
    connected: Connected, method: str, path: str
) -> None:
    """A path beyond ASCII, and a CONNECT without one: the next request is answered."""
    stream = connected.begin(method, path, ends=True)

    assert connected.reset(stream) is ErrorCodes.PROTOCOL_ERROR
    assert connected.status(connected.begin("GET", "/healthz", ends=True)) == "200"


def test_a_websocket_over_http_2_is_refused(connected: Connected) -> None:
    """RFC 8441; there is no endpoint for it."""
    asked = [(":protocol", "websocket"), ("sec-websocket-version", "13")]
    stream = connected.h2.get_next_available_stream_id()
    fixed = [(":method", "CONNECT"), (":path", "/healthz"), (":scheme", "http")]
    connected.h2.send_headers(stream, [*fixed, (":authority", "a"), *asked], end_stream=False)
    connected.send()

    assert connected.status(stream) == "400"


def test_a_stream_whose_client_gives_no_room_is_ended(home: Home) -> None:
    """The other requests on its connection go on."""
    connected = connection_to(home.serve(send_timeout_s="0.3"))
    connected.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    connected.send()
    stream = connected.begin("GET", "/docs", ends=True)

    assert connected.reset(stream) is ErrorCodes.CANCEL
    connected.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    connected.send()
    assert connected.status(connected.begin("GET", "/healthz", ends=True)) == "200"
    connected.close()


@only_full
def test_a_body_without_room_is_not_made(long_home: Home) -> None:
    """An export whose client opens no window would else be held in memory whole."""
    server = long_home.serve(send_timeout_s="0.5")
    connected = connection_to(server)
    connected.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    connected.send()
    stream = connected.begin("GET", EXPORT_PATH, ("x-service-admin-token", ADMIN_TOKEN), ends=True)

    assert connected.reset(stream) is ErrorCodes.CANCEL
    with server.client() as client:
        eventually(lambda: finished(client), "the end of the export is recorded")
        (row,) = finished(client)
    assert row["payload"]["complete"] is False
    assert row["payload"]["bytes"] < 4 * 2**20
    connected.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    connected.send()
    assert connected.status(connected.begin("GET", "/healthz", ends=True)) == "200"
    connected.close()


def finished(client: httpx2.Client) -> list[dict[str, Any]]:
    return all_entries(client, event="audit_export_finished")


def test_a_connection_without_a_request_is_closed(home: Home) -> None:
    """As every idle one."""
    server = home.serve(keep_alive_s="0.2")
    connected = connection_to(server)
    assert connected.is_closed()
    connected.close()
    assert server.stop() == 0
    assert "Traceback" not in server.logged()


def test_a_refused_request_with_a_long_body_holds_up_no_other(connected: Connected) -> None:
    """What still comes of it is dropped; the next stream is answered."""
    length = ("content-length", "60")
    refused = connected.begin("POST", "*", length, ends=False)
    for number in range(60):
        connected.h2.send_data(refused, b"x", end_stream=number == 59)
    connected.send()

    assert connected.status(refused) == "400"
    assert connected.status(connected.begin("GET", "/healthz", ends=True)) == "200"
