"""Connections: what a client is told about the one it holds."""

import socket
from contextlib import closing

import pytest

from tests.conftest import binding_body, bindings_path
from tests.processes.homes import DEADLINE_S

pytestmark = pytest.mark.slow


def test_an_answer_that_overtakes_the_body_says_that_the_connection_ends(quiet_server):
    """A refusal needs no body; a client that is not told sends its next request into the void."""
    address = ("127.0.0.1", quiet_server.port)
    with closing(socket.create_connection(address, DEADLINE_S)) as connection:
        connection.sendall(
            f"POST {bindings_path()} HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n".encode()
        )
        answer = connection.recv(65_536).lower()

    assert answer.startswith(b"http/1.1 401 ")
    assert b"\r\nconnection: close\r\n" in answer


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
