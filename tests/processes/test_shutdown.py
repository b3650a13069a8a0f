"""The graceful end: what was begun is finished, nothing new begins, and it does not take long."""

import json
import socket
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from tests import other_programs
from tests.budgets import only_full
from tests.conftest import ADMIN_TOKEN, binding_body, bindings_path
from tests.processes.exports import EXPORT_PATH
from tests.processes.homes import DEADLINE_S, Home, Server, all_bindings, all_entries, eventually

LIVE_PATH = "/admin/ui/orgs/acme/audit/live"

pytestmark = pytest.mark.slow


class Create:
    """A create whose headers the server has answered with 100: it is in flight for certain."""

    def __init__(self, server: Server) -> None:
        self.body = json.dumps(binding_body()).encode()
        self.connection = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self.connection.sendall(
            f"POST {bindings_path()} HTTP/1.1\r\n"
            f"host: 127.0.0.1\r\n"
            f"x-service-admin-token: {ADMIN_TOKEN}\r\n"
            f"content-type: application/json\r\n"
            f"content-length: {len(self.body)}\r\n"
            f"expect: 100-continue\r\n\r\n".encode()
        )
        assert self.connection.recv(1024).startswith(b"HTTP/1.1 100 ")

    def send_body(self) -> None:
        self.connection.sendall(self.body)

    def answer(self) -> bytes:
        """Everything up to the end of the connection."""
        answer = b""
        with closing(self.connection), suppress(ConnectionResetError):
            while piece := self.connection.recv(65_536):
                answer += piece
        return answer


@contextmanager
def write_lock(home: Home):
    with other_programs.write_lock(home.data_dir):
        yield


def begin_stopping(server: Server) -> None:
    """SIGTERM, and wait until no new connection is taken."""
    server.terminate()
    eventually(lambda: not server.is_listening(), "no new connections")
    assert server.process.poll() is None, "it ended with a request in flight"


def stored_rows(home: Home, event: str) -> list[dict[str, Any]]:
    """Acme's rows of `event` once no server runs."""
    return home.ask("audit", "query", "--org", "acme", "--event", event)["entries"]


def the_one_binding(home: Home) -> list[str]:
    """The subjects of the created rows; each is a binding and each binding is there."""
    ids = [binding["id"] for binding in home.listed("bindings", "list", "--org", "acme")]
    assert [row["subject"] for row in stored_rows(home, "oidc_binding_created")] == ids
    return ids


def test_a_request_in_flight_is_finished_before_the_end(home):
    server = home.serve()
    create = Create(server)
    with write_lock(home):
        create.send_body()
        begin_stopping(server)
    answer = create.answer()

    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert server.wait() == 0
    assert the_one_binding(home) == [json.loads(answer.partition(b"\r\n\r\n")[2])["id"]]


def test_a_body_still_on_its_way_is_awaited(home):
    server = home.serve()
    create = Create(server)
    begin_stopping(server)
    create.send_body()

    assert create.answer().startswith(b"HTTP/1.1 201 ")
    assert server.wait() == 0
    assert len(the_one_binding(home)) == 1


def test_a_request_that_never_ends_is_given_up_after_the_grace(home):
    """`shutdown_grace_s` bounds the wait: an orchestrator kills what takes longer."""
    server = home.serve(shutdown_grace_s="0.5")
    create = Create(server)
    server.terminate()

    assert server.wait() == 0
    assert not create.answer().startswith(b"HTTP/1.1 2")
    assert the_one_binding(home) == []


NO_END = "3600"
"""A grace that is longer than any test waits."""


def test_idle_connections_do_not_hold_up_the_end(home):
    server = home.serve(shutdown_grace_s=NO_END)
    with server.client() as client, socket.create_connection(("127.0.0.1", server.port)) as half:
        assert client.get("/healthz").status_code == 200
        half.sendall(b"GET /heal")
        server.terminate()
        assert server.wait() == 0


def test_pages_that_wait_for_rows_do_not_hold_up_the_end(home):
    server = home.serve(shutdown_grace_s=NO_END)
    with server.client() as client, client.stream("GET", LIVE_PATH) as response:
        pieces = response.iter_raw()
        assert next(pieces).startswith(b"retry: ")
        server.terminate()
        assert server.wait() == 0
        assert b"ended" not in b"".join(pieces)


@only_full
def test_an_export_in_flight_reaches_its_last_byte(long_home):
    server = long_home.serve()
    with server.client() as client, client.stream("GET", EXPORT_PATH) as response:
        pieces = response.iter_raw()
        body = next(pieces)
        begin_stopping(server)
        body += b"".join(pieces)

    assert len(json.loads(body)) == int(response.headers["x-row-count"])
    assert server.wait() == 0
    (finished,) = stored_rows(long_home, "audit_export_finished")
    assert finished["payload"]["complete"] is True
    assert finished["payload"]["bytes"] == len(body)


def test_an_export_without_a_reader_is_cut_after_the_grace_and_recorded(long_home):
    server = long_home.serve(shutdown_grace_s="0.5")
    with server.client() as client, client.stream("GET", EXPORT_PATH) as response:
        next(response.iter_raw())
        server.terminate()
        assert server.wait() == 0

    (finished,) = stored_rows(long_home, "audit_export_finished")
    assert finished["payload"]["complete"] is False


def test_a_client_who_leaves_does_not_leave_the_database_locked(home):
    server = home.serve()
    for _ in range(10):
        create = Create(server)
        with write_lock(home):
            create.send_body()
            create.connection.close()
    with server.client() as client:
        answer = client.post(bindings_path(), json=binding_body(repository_id="7"))
        assert answer.status_code == 201, answer.text
        ids = {binding["id"] for binding in all_bindings(client)}
        rows = all_entries(client, event="oidc_binding_created")
    assert answer.json()["id"] in ids
    assert sorted(row["subject"] for row in rows) == sorted(ids)
    assert server.stop() == 0
