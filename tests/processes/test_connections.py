"""Connections: what a client is told about the one it holds."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from service.app.hypercorn_server import LINGER_BYTES
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.processes.exports import EXPORT_PATH
from tests.processes.homes import DEADLINE_S, Home, Server, eventually

pytestmark = pytest.mark.slow


def test_an_answer_that_overtakes_the_body_says_that_the_connection_ends(quiet_server):
    address = ("127.0.0.1", quiet_server.port)
    with closing(socket.create_connection(address, DEADLINE_S)) as connection:
        connection.sendall(
            f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n".encode()
        )
        answer = connection.recv(65_536).lower()

    assert answer.startswith(b"http/1.1 401 ")
    assert b"\r\nconnection: close\r\n" in answer


def begin_long_body(connection: socket.socket, size: int) -> None:
    """Send the head of a request that is refused for its credentials, with a body of `size`."""
    connection.sendall(
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n".encode()
    )


def test_a_client_that_still_sends_its_body_gets_the_whole_answer(quiet_server):
    """To close the connection then would reset it, and a proxy would answer 502 (RFC 9112, 9.6)."""
    body = b"a" * (5 * 2**20)  # far more than the sockets' buffers hold
    with connection_to(quiet_server) as connection:
        begin_long_body(connection, len(body))
        connection.sendall(body)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.endswith(b"}")


def test_a_client_that_sends_on_after_its_answer_is_disconnected(quiet_server):
    with connection_to(quiet_server) as connection:
        begin_long_body(connection, 2**40)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")
        sent = 0
        with suppress(ConnectionError):
            while sent < 10 * LINGER_BYTES:
                sent += connection.send(b"a" * 65_536)

    assert LINGER_BYTES <= sent < 10 * LINGER_BYTES


def test_a_client_that_keeps_an_answered_connection_is_disconnected(quiet_server):
    """However few bytes it sends: its place is free after LINGER_S."""
    with connection_to(quiet_server) as connection:
        begin_long_body(connection, 2**20)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 ")

        def is_disconnected() -> bool:
            with suppress(ConnectionError):
                connection.send(b"a")
                return False
            return True

        assert eventually(is_disconnected, "the server closes")


def test_refused_and_accepted_requests_share_a_client_without_a_broken_connection(quiet_server):
    """The same from the client's side: forty requests, forty answers, none sent twice."""
    with quiet_server.client(headers={}) as stranger:
        codes = [stranger.post(bindings_path(), json=binding_body()).status_code for _ in range(20)]
    with quiet_server.client() as client:
        connections = {
            client.get(bindings_path()).extensions["network_stream"].get_extra_info("client_addr")
            for _ in range(20)
        }
    assert codes == [401] * 20
    assert len(connections) == 1, "an answer to a request without a body keeps its connection"


WEBSOCKET = (
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@contextmanager
def connection_to(server: Server, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A client's connection, from the address `source`."""
    address = ("127.0.0.1", server.port)
    with closing(socket.create_connection(address, DEADLINE_S, (source, 0))) as connection:
        yield connection


def answered(server: Server, request: str) -> bytes:
    """The answer to `request`, in small letters, up to the end of the connection."""
    with connection_to(server) as connection:
        connection.sendall(request.encode())
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return answer.lower()


def test_a_websocket_is_refused_in_one_line(home: Home):
    server, paths = home.serve(), ["/healthz", "/nowhere", bindings_path()]

    for path in paths:
        answer = answered(server, f"GET {path} HTTP/1.1\r\nhost: a\r\n{WEBSOCKET}\r\n")
        assert answer.startswith(b"http/1.1 400 ")
        assert b"\r\ncontent-security-policy: " in answer
        assert b"\r\nx-request-id: req_" in answer
        assert answer.endswith(b'\r\n\r\n{"error":"bad request"}')
    assert server.stop() == 0
    assert "Traceback" not in server.logged()
    events = [line["event"] for line in server.log_lines()]
    assert events.count("request_rejected") == len(paths)


def test_two_lengths_of_one_body_are_refused(quiet_server: Server):
    """A proxy may believe the one and this server the other (RFC 9112, 6.1)."""
    answer = answered(
        quiet_server,
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n"
        "content-type: application/json\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
        "2\r\n{}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    )

    assert answer.startswith(b"http/1.1 400 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"http/1.1 ") == 1


@pytest.mark.parametrize(
    "framing",
    [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding : chunked",
        "content-length: 4\r\ncontent-length: 5",
        "content-length: +4",
        "content-length: 0x4",
        "content-length: -4",
    ],
)
def test_a_body_whose_end_others_may_see_elsewhere_is_refused(quiet_server: Server, framing: str):
    """What follows is no second request (RFC 9112, 11.2): it ends with the connection."""
    answer = answered(
        quiet_server,
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n"
        f"{framing}\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    )

    assert answer.startswith((b"http/1.1 400 ", b"http/1.1 501 "))
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"http/1.1 ") == 1


def test_a_credential_behind_the_body_is_none(quiet_server: Server):
    """Trailers are no headers: a proxy that removes credentials does not look there."""
    answer = answered(
        quiet_server,
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        "connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        f"2\r\n{{}}\r\n0\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n\r\n",
    )

    assert answer.startswith(b"http/1.1 401 ")


@pytest.mark.parametrize("place", ["extension", "trailer"])
def test_what_is_beside_the_body_is_bounded(quiet_server: Server, place: str):
    # No more than is read: a connection that is closed with bytes unread may lose its answer.
    long = "a" * 2**16
    body = f"2;a={long}" if place == "extension" else f"2\r\n{{}}\r\n0\r\nx: {long}"
    answer = answered(
        quiet_server,
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n"
        f"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{body}",
    )

    assert answer.startswith(b"http/1.1 431 ")


def test_a_refused_request_with_a_long_body_ends(quiet_server: Server):
    """The rest of the body must be read, or the server waits for itself."""
    answer = answered(
        quiet_server,
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n"
        "transfer-encoding: chunked\r\n\r\n" + "1\r\nx\r\n" * 60 + "0\r\n\r\n",
    )

    assert answer.startswith(b"http/1.1 400 ")


@pytest.mark.parametrize(("request_line", "status"), [("GET /healthz", 200), ("PRI /healthz", 405)])
def test_http_2_is_not_upgraded_to(quiet_server: Server, request_line: str, status: int):
    """RFC 9113 has dropped it, and a server may ignore what a client offers (RFC 9110, 7.8).

    Nor is PRI alone the preface of HTTP/2.
    """
    answer = answered(
        quiet_server,
        f"{request_line} HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings, close\r\n"
        "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    )

    assert answer.startswith(f"http/1.1 {status} ".encode())


HTTP_2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_SETTINGS = bytes.fromhex("000000 04 00 00000000")
PING = bytes.fromhex("000008 06 00 00000000") + bytes(8)


@pytest.mark.parametrize("frames", [b"", NO_SETTINGS, NO_SETTINGS + PING * 10_000])
def test_http_2_without_tls_is_refused(quiet_server: Server, frames: bytes):
    """Before it reads a frame: pings and resets, which make no request, could occupy it."""
    with connection_to(quiet_server) as connection:
        with suppress(ConnectionError):  # the rest is not read
            connection.sendall(HTTP_2_PREFACE + frames)
        received = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += piece
    if frames != NO_SETTINGS + PING * 10_000:  # there the answer may be lost with the reset
        assert received.startswith(b"HTTP/1.1 505 ")
    with quiet_server.client() as client:
        assert client.get("/healthz").status_code == 200


def is_ended(connection: socket.socket) -> bool:
    """Wait until the server ends the connection."""
    with suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


def test_headers_that_come_too_slowly_end_the_connection(home: Home):
    """However often a piece of them comes: such connections are cheap to hold by the thousand.

    Without an answer: that would be the refusal of a head that has become too long.
    """
    server = home.serve(head_timeout_s="0.3", keep_alive_s="600")
    answer = None
    with connection_to(server) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n")
        slow.settimeout(0.02)
        while answer is None:
            try:
                slow.sendall(b"x-a: %s\r\n" % (b"b" * 250))
                answer = slow.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                answer = b""
    assert answer == b""
    with server.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_body_may_take_longer_than_a_head(home: Home):
    server = home.serve(head_timeout_s="1")
    body = json.dumps(binding_body()).encode()
    head = (
        f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    with connection_to(server) as slow:
        slow.settimeout(0.1)
        for piece in (head[:20], head[20:], *(body[at : at + 1] for at in range(11)), body[11:-1]):
            slow.sendall(piece)
            with pytest.raises(TimeoutError):
                slow.recv(1)
        slow.settimeout(DEADLINE_S)
        slow.sendall(body[-1:])
        answer = slow.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 201 ")


def test_of_too_many_connections_the_one_that_is_idle_longest_ends(home: Home):
    """A flood of idle connections locks out no other client."""
    server = home.serve(connections_max="3", keep_alive_s="600")
    with ExitStack() as opened:
        first, *others = (opened.enter_context(connection_to(server)) for _ in range(3))
        assert all(is_served(connection) for connection in (first, *others))
        late = opened.enter_context(connection_to(server))
        assert is_served(late)

        assert is_ended(first)
        assert is_served(others[1])


@contextmanager
def busy_connection(server: Server) -> Iterator[socket.socket]:
    """A connection with a request under way, whose body is awaited."""
    head = f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}"
    with connection_to(server) as busy:
        busy.sendall(f"{head}\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n".encode())
        assert busy.recv(65_536).startswith(b"HTTP/1.1 100 ")
        yield busy


def is_served(connection: socket.socket) -> bool:
    """Whether a request on it is answered, and the connection stays open."""
    with suppress(ConnectionError):
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        return connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    return False


@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
def test_an_address_has_its_part_of_the_connections(home: Home, trusted: str):
    """A trusted proxy's connections are those of many clients."""
    server = home.serve(
        connections_per_address_max="2", trusted_proxies=trusted, keep_alive_s="600"
    )
    with ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(busy_connection(server))
        late = opened.enter_context(connection_to(server))
        assert is_served(late) if trusted else is_ended(late)


def test_an_address_with_too_many_connections_loses_one_of_its_own(home: Home):
    server = home.serve(connections_per_address_max="2", keep_alive_s="600")
    with ExitStack() as opened:
        other, *own = (
            opened.enter_context(connection_to(server, source))
            for source in ("127.0.0.2", *["127.0.0.1"] * 3)
        )

        assert all(is_served(connection) for connection in (own[2], own[1], other))
        assert is_ended(own[0])


def test_connections_that_end_during_a_request_take_no_place(home: Home):
    """Else clients that give up lock out their address, and in time all others."""
    server = home.serve(connections_per_address_max="2", keep_alive_s="600")
    for _ in range(2):
        with busy_connection(server):
            pass

    def is_new_one_served() -> bool:
        with connection_to(server) as late:
            return is_served(late)

    assert eventually(is_new_one_served, "a place is free")


def test_connections_that_were_reset_take_no_place(home: Home):
    """Else a client that connects and is gone at once locks itself out, and in time all others."""
    server = home.serve(connections_per_address_max="4", keep_alive_s="600")
    for _ in range(100):
        with connection_to(server) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(4):
        with connection_to(server) as connection:
            assert is_served(connection)
    assert server.stop() == 0
    assert "Traceback" not in server.logged()


def test_an_idle_connection_is_closed_after_its_time(home: Home):
    """Longer than a load balancer keeps its own, which would else meet a closed one."""
    server = home.serve(keep_alive_s="0.2", send_timeout_s="0.2")
    for _ in range(3):  # each longer than it takes to look after the one before
        with connection_to(server) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
            while connection.recv(65_536):
                pass
    assert server.stop() == 0
    assert "Traceback" not in server.logged()


def begin_not_reading(connection: socket.socket) -> None:
    """Ask for far more than the sockets' buffers hold."""
    connection.sendall(b"GET /docs HTTP/1.1\r\nhost: a\r\n\r\n" * 80)


@contextmanager
def narrow_connection(server: Server, room: int = 4096) -> Iterator[socket.socket]:
    """A client with `room` bytes for what it does not read, by default the least there is."""
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        connection.connect(("127.0.0.1", server.port))
        yield connection


def is_reset(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def test_a_client_that_does_not_read_is_disconnected(home: Home):
    """What waits for it takes memory, and a stalled export one of few places."""
    server = home.serve(send_timeout_s="0.3")
    with narrow_connection(server) as connection:
        begin_not_reading(connection)
        eventually(lambda: is_reset(connection), "the connection is aborted")
    with server.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_client_that_does_not_read_does_not_hold_up_the_end(home: Home):
    server = home.serve(shutdown_grace_s="0.5")
    with narrow_connection(server) as connection, narrow_connection(server) as other:
        begin_not_reading(connection)
        begin_not_reading(other)
        server.terminate()
        assert server.wait() == 0
    assert "stop_cut_short" not in server.logged()


@only_full
def test_a_client_that_reads_slowly_is_served(long_home: Home):
    """Each part has its time, not a piece of megabytes: an export may take hours on a slow line."""
    server = long_home.serve(send_timeout_s="2.5")
    with narrow_connection(server, 65_536) as connection:
        connection.sendall(
            f"GET {EXPORT_PATH} HTTP/1.1\r\nhost: a\r\nx-service-admin-token: {ADMIN_TOKEN}\r\n"
            "accept-encoding: identity\r\n\r\n".encode()
        )
        received = 0
        while received < 4 * 2**20:
            piece = connection.recv(65_536)
            assert piece, f"the connection was closed after {received} bytes"
            received += len(piece)
            time.sleep(len(piece) / 500_000)  # a line of 0.5 MB/s: 4 s for a piece
