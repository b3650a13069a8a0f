"""`countersign serve --workers N`: several processes behind one address behave as one server."""

import os
import signal
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import binding_body, bindings_path
from tests.processes.homes import Home, Server, all_bindings, all_entries, eventually

REQUESTS = 60


@pytest.fixture
def server(home: Home) -> Server:
    """Two processes."""
    return home.serve(workers="2")


def children(process_id: int) -> set[int]:
    """The processes that this one started and that run."""
    listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return {int(child) for child in listed.split()}


def listeners(server: Server) -> set[int]:
    """The children that hold the server's socket: all but multiprocessing's resource tracker."""
    inode = socket_inode(server.port)
    return {
        child
        for child in children(server.process.pid)
        if any(str(link.readlink()) == inode for link in Path(f"/proc/{child}/fd").iterdir())
    }


def socket_inode(port: int) -> str:
    """The name of the listening socket of this port, as /proc/PID/fd has it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
            return f"socket:[{fields[9]}]"
    raise AssertionError(f"no process listens on {port}")


def have_ended(processes: set[int]) -> bool:
    """True once none of them is there any more."""
    return not any(Path(f"/proc/{process}").exists() for process in processes)


def requests_counted(server: Server) -> float:
    """How many requests for bindings the metrics count, of whichever process answers."""
    with server.client(headers={}) as client:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "countersign_http_requests_total"
            and sample.labels["route"].endswith("/oidc-bindings")
        )


def ask_often(server: Server) -> None:
    """REQUESTS requests, each over a connection of its own, so that the processes share them."""
    for _ in range(REQUESTS):
        with server.client() as client:
            assert client.get(bindings_path()).status_code == 200


def test_metrics_count_the_requests_of_all_processes(server: Server) -> None:
    """A scrape reaches one process and shows the sum, at every scrape the same."""
    ask_often(server)

    assert len(listeners(server)) == 2
    assert {requests_counted(server) for _ in range(8)} == {REQUESTS}


def test_a_process_that_dies_is_replaced_and_loses_nothing_durable(server: Server) -> None:
    """What was answered 201 is there; the counts of the dead process stay in the sum."""
    with server.client() as client:
        created = client.post(bindings_path(), json=binding_body())
        assert created.status_code == 201
    ask_often(server)
    (victim, survivor) = sorted(listeners(server))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(listeners(server) - {victim}) == 2, "the process is replaced")

    assert survivor in listeners(server)
    assert requests_counted(server) == REQUESTS + 1
    with server.client() as client:
        assert [one["id"] for one in all_bindings(client)] == [created.json()["id"]]
        assert sum(row["event"] == "oidc_binding_created" for row in all_entries(client)) == 1
    died = [line for line in server.log_lines() if line["event"] == "serving_process_died"]
    assert [line["exit_code"] for line in died] == [-signal.SIGKILL]


def test_one_of_the_processes_does_the_maintenance(server: Server) -> None:
    """The others would find nothing left to do, and ask the database for it."""
    with server.client(headers={}) as client:
        seen = [
            {
                sample.labels["job"]
                for family in text_string_to_metric_families(client.get("/metrics").text)
                for sample in family.samples
                if sample.name == "countersign_maintenance_failures_total"
            }
            for _ in range(8)
        ]
    assert all({"seal", "compact", "prune"} <= jobs for jobs in seen)


def test_a_signal_stops_all_processes(server: Server) -> None:
    """With exit code 0, and no process or socket left."""
    processes = children(server.process.pid)

    assert server.stop() == 0

    eventually(lambda: have_ended(processes), "the processes have ended")
    assert not server.is_listening()


def test_processes_end_when_their_supervisor_is_killed(server: Server) -> None:
    """Else they would hold the address, with nothing to replace or stop them."""
    processes = listeners(server)
    server.kill()

    eventually(lambda: have_ended(processes), "the processes have ended")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", trust_env=False)


def test_processes_that_cannot_start_end_the_command(home: Home) -> None:
    """With one line that says why, and no restart without end."""
    server = home.start(workers="2", oauth_google_client_id="only-half-of-it")

    assert server.wait() == 1

    lines = [line for line in server.log_lines() if line["event"] == "cannot_serve"]
    assert lines
    assert all("COUNTERSIGN_OAUTH_GOOGLE_CLIENT_SECRET" in line["reason"] for line in lines)
