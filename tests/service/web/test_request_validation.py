"""What is no proper HTTP request gets a 400 like any other, and the next request its answer."""

import json
import socket

import pytest

from tests.conftest import SCRAPER
from tests.processes.conftest import acme, quiet_home, quiet_server
from tests.processes.homes import DEADLINE_S, Server

__all__ = ["acme", "quiet_home", "quiet_server"]  # fixtures are found by name

pytestmark = pytest.mark.slow


def exchange(server: Server, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to raw bytes."""
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\r\nhost: " + b"x" * 64 + b".example\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a..b\r\n\r\n",
        b"GET ?x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_what_the_framework_would_trip_over_is_a_400(
    quiet_server: Server,
    request_bytes: bytes,
) -> None:
    """With an error body and a request id, and without a traceback in the log."""
    head, body = exchange(quiet_server, request_bytes)

    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: req_" in head
    assert b"x-content-type-options: nosniff" in head
    assert json.loads(body) == {"error": "bad request"}
    assert "Traceback" not in quiet_server.logged()
    with quiet_server.client() as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("name", ["a" * 300, "a" * 5000, "%00", "..%2fapp.py"])
def test_a_name_no_file_can_have_is_a_404(quiet_server: Server, name: str) -> None:
    with quiet_server.client() as client:
        answer = client.get(f"/static/{name}")

    assert (answer.status_code, answer.json()) == (404, {"error": "not found"})


def test_made_up_methods_make_no_new_metrics(quiet_server: Server) -> None:
    """Labels that a client can choose would grow without end."""
    with quiet_server.client() as client:
        for number in range(5):
            assert client.request(f"MADEUP{number}", "/healthz").status_code == 405
        exposed = client.get("/metrics", headers=SCRAPER).text

    assert "MADEUP" not in exposed
    assert 'method="other"' in exposed
