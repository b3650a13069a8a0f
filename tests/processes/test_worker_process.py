"""The process that prepares large bodies: the rows are the same with it, and without it."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from service.audit.ingest import LARGE_BYTES
from service.audit.lake import Lake
from service.audit.worker_process import WORKERS_UNAVAILABLE, WorkerProcess
from service.core.threads import BACKGROUND_NICENESS
from tests.budgets import only_full
from tests.conftest import settings_over
from tests.proc_files import children, command
from tests.processes.homes import Home, Server, all_entries, eventually
from tests.processes.supervised import die_in_a_process_of_its_own

pytestmark = pytest.mark.slow

ACME = "acme"
PATH = "/api/v1/admin/orgs/acme/audit/events"
ROWS = 1_500
PROCESSES_MAX = 2
"""One for short computations and one for long ones. The second may start early: the pool knows
shortly after an answer that the process which gave it is idle."""


def body(name: str) -> bytes:
    """ROWS good items whose packages nothing else has, and two that are refused."""
    good = [
        {"event": "install_allowed", "packageName": f"{name}/{n}", "version": "1.0.0"}
        for n in range(ROWS)
    ]
    content = json.dumps([{"event": "no_such_event"}, *good, 7]).encode()
    assert len(content) >= LARGE_BYTES
    return content


def send(server: Server, name: str) -> None:
    """Send a large body, and see all of it taken."""
    with server.client() as client:
        answer = client.post(PATH, content=body(name), headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == ROWS
        assert [item["index"] for item in answer.json()["rejected"]] == [0, ROWS + 1]


def workers(process_id: int) -> list[int]:
    """The processes that this one has started and that prepare bodies."""
    return [child for child in children(process_id) if b"spawn_main" in command(child)]


def with_worker(server: Server, times: int = 1) -> int:
    """A worker process of the server, once they have become ready for so many times."""
    eventually(
        lambda: server.logged().count("worker_process_ready") == times, "a worker that is ready"
    )
    started = workers(server.process.pid)
    assert 1 <= len(started) <= PROCESSES_MAX
    return started[0]


def names(server: Server) -> list[str]:
    """The packages of all rows, sorted."""
    with server.client() as client:
        rows = all_entries(client, event="install_allowed", limit=1_000)
    return sorted(row["packageName"] for row in rows)


def test_rows_are_the_same_before_with_and_after_the_worker(home: Home):
    server = home.serve()
    assert workers(server.process.pid) == []
    send(server, "first")
    worker = with_worker(server)
    send(server, "second")
    os.kill(worker, signal.SIGKILL)
    send(server, "third")
    send(server, "fourth")
    assert with_worker(server, times=2) != worker
    send(server, "fifth")

    bodies = ("first", "second", "third", "fourth", "fifth")
    assert names(server) == sorted(f"{name}/{row}" for name in bodies for row in range(ROWS))
    assert server.stop() == 0


@only_full
def test_many_first_bodies_at_once_do_not_start_a_process_each(home: Home):
    """Each process takes seconds and memory; a burst is when there is least of both."""
    server = home.serve()
    bodies = [f"body-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(bodies)) as threads:
        list(threads.map(lambda name: send(server, name), bodies))

    with_worker(server)
    assert names(server) == sorted(f"{name}/{row}" for name in bodies for row in range(ROWS))


def test_a_body_that_is_refused_is_refused_by_the_worker_too(home: Home):
    server = home.serve()
    send(server, "first")
    with_worker(server)
    with server.client() as client:
        wrong = client.post(
            PATH, content=b"[" + b" " * LARGE_BYTES, headers={"content-type": "application/json"}
        )
        many = client.post(
            PATH,
            content=json.dumps([{"event": "install_allowed"}] * 10_001).encode(),
            headers={"content-type": "application/json"},
        )
    assert (wrong.status_code, many.status_code) == (400, 413)
    assert "JSON array" in wrong.json()["error"]
    assert many.json()["error"] == "at most 10000 rows in one request"
    assert len(names(server)) == ROWS


@only_full
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_worker_ends_with_its_server(home: Home, end):
    server = home.serve()
    send(server, "first")
    worker = with_worker(server)

    server.process.send_signal(end)
    server.wait()

    eventually(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")
    assert server.process.returncode == (-end if end is signal.SIGKILL else 0)


async def test_what_ends_its_process_is_never_computed_in_the_server(tmp_path):
    lake = Lake(settings_over(tmp_path))
    worker = WorkerProcess(lake, processes=1)
    try:
        for _ in range(2):
            with pytest.raises(WORKERS_UNAVAILABLE) as refused:
                await worker.compute(ACME, die_in_a_process_of_its_own, os.getpid())
            assert refused.value.retry_after_s

        assert await worker.compute(ACME, os.getpid) != os.getpid()
    finally:
        worker.close()
        lake.close()


async def test_the_worker_lets_its_server_go_first(tmp_path):
    """The processor serves the event loop before a flood of bodies."""
    lake = Lake(settings_over(tmp_path))
    worker = WorkerProcess(lake, 1)
    niceness = partial(os.getpriority, os.PRIO_PROCESS, 0)

    try:
        of_worker = await worker.compute(ACME, niceness)
    finally:
        worker.close()
        lake.close()

    assert of_worker == min(niceness() + BACKGROUND_NICENESS, 19)


def test_without_processes_a_thread_does_it(home: Home):
    """COUNTERSIGN_INGEST_PROCESSES=0."""
    server = home.serve(ingest_processes="0")
    send(server, "first")
    send(server, "second")
    assert len(names(server)) == 2 * ROWS
    assert workers(server.process.pid) == []
