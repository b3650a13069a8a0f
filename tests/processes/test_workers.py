"""`countersign serve --workers N`: several processes behind one address behave as one server."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from service.app.supervisor import Supervisor
from tests.budgets import only_full
from tests.conftest import SCRAPER, binding_body, bindings_path
from tests.polling import HANG_S
from tests.proc_files import descendants, open_names
from tests.processes.homes import Home, Server, all_bindings, all_entries, eventually
from tests.processes.supervised import (
    die_at_the_first_start,
    end_after_serving,
    end_at_once,
    fail_beside_one_that_serves,
    hold_the_loop,
)
from tests.processes.test_maintenance_processes import metrics_folder

pytestmark = pytest.mark.usefixtures("own_forkserver")
REQUESTS = 60


@pytest.fixture
def server(home: Home) -> Server:
    return home.serve(workers="2")


@pytest.fixture
def pair(there: Home) -> Server:
    """Two processes that serve, and have served; tests that kill them share what is left."""
    running = [server for server in there.servers if server.process.poll() is None]
    server = running[0] if running else there.serve(workers="2", stall_s="3")
    # A loop that has not begun to turn is not watched: a start may wait for its database.
    eventually(lambda: now_serving(server) == 2, "two processes that serve")
    return server


def now_serving(server: Server) -> int:
    """How many of those that have begun to serve have not died."""
    return times_logged(server, "serving") - times_logged(server, "serving_process_died")


def times_logged(server: Server, event: str) -> int:
    return server.logged().count(f'"event": "{event}"')


def listeners(server: Server) -> set[int]:
    """The processes that hold the server's socket beside the supervisor."""
    inode = socket_inode(server.port)
    return {child for child in descendants(server.process.pid) if inode in open_names(child)}


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
    with server.client(headers=SCRAPER) as client:
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


@only_full
def test_metrics_count_the_requests_of_all_processes(server: Server) -> None:
    ask_often(server)

    assert len(listeners(server)) == 2
    assert {requests_counted(server) for _ in range(8)} == {REQUESTS}


def test_a_process_that_dies_is_replaced_and_loses_nothing_durable(pair: Server) -> None:
    """What was answered 201 is there; the counts of the dead process stay in the sum."""
    with pair.client() as client:
        created = client.post(bindings_path(), json=binding_body())
        assert created.status_code == 201
    ask_often(pair)
    before = requests_counted(pair)
    assert before > REQUESTS
    (victim, survivor) = sorted(listeners(pair))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(listeners(pair) - {victim}) == 2, "the process is replaced")

    assert survivor in listeners(pair)
    assert requests_counted(pair) == before
    with pair.client() as client:
        assert [one["id"] for one in all_bindings(client)] == [created.json()["id"]]
        assert sum(row["event"] == "oidc_binding_created" for row in all_entries(client)) == 1
    died = [line for line in pair.log_lines() if line["event"] == "serving_process_died"]
    assert died[-1]["exit_code"] == -signal.SIGKILL


def test_a_stopped_process_is_replaced_and_the_others_serve_on(pair: Server) -> None:
    stopped = min(listeners(pair))
    stalls = times_logged(pair, "loop_stalled")
    os.kill(stopped, signal.SIGSTOP)

    eventually(lambda: have_ended({stopped}), "the end of the process that was stopped")
    eventually(lambda: len(listeners(pair)) == 2, "two processes")
    assert times_logged(pair, "loop_stalled") > stalls
    ask_often(pair)


def labels_shown(server: Server, metric: str, label: str) -> set[str]:
    with server.client(headers=SCRAPER) as client:
        return {
            sample.labels[label]
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
            if sample.name == metric
        }


@only_full
def test_metrics_show_the_memory_of_each_process(server: Server) -> None:
    processes = {"0", "1", "supervisor", "seal", "maintenance"}

    def shown() -> set[str]:
        return labels_shown(server, "process_resident_memory_bytes", "process")

    eventually(lambda: processes <= shown(), "each process is shown")
    assert {name.partition(".")[0] for name in shown()} == processes


def jobs_shown(server: Server) -> set[str]:
    return labels_shown(server, "countersign_maintenance_failures_total", "task")


@only_full
def test_the_jobs_of_the_process_that_maintains_are_shown_by_all(server: Server) -> None:
    """An alert needs them, whichever process a scrape reaches."""
    for _ in range(8):
        assert eventually(
            lambda: {"seal", "compact", "prune"} <= jobs_shown(server), "all jobs are shown"
        )


def forked_from(server: Server) -> int:
    """The process that those which serve were forked from."""
    (parent,) = {
        int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        for process in listeners(server)
    }
    assert parent != server.process.pid
    return parent


def test_processes_are_replaced_when_what_they_were_forked_from_is_killed(pair: Server) -> None:
    """The supervisor learns of their ends from it: it must not watch them in vain.

    To one that learns late of it, the supervisor seems to be gone: it removes no files of those
    that follow, without which no process could be started any more.
    """
    before, folder = listeners(pair), metrics_folder(pair)
    files, served = {path.name for path in folder.iterdir()}, times_logged(pair, "serving")
    late, killed = min(before), forked_from(pair)
    os.kill(late, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: times_logged(pair, "serving") == served + 2, "two others that serve")

    os.kill(late, signal.SIGCONT)

    eventually(lambda: have_ended(before), "the end of those that nothing watches")
    assert {path.name for path in folder.iterdir()} == files
    assert forked_from(pair) != killed
    with pair.client() as client:
        assert client.get("/readyz").status_code == 200


def test_a_signal_to_all_processes_stops_them_in_order(pair: Server) -> None:
    """As systemd sends it to each of a unit: the supervisor still waits for those that serve."""
    processes, folder = descendants(pair.process.pid), metrics_folder(pair)
    stopped = times_logged(pair, "stopped")
    for process in (forked_from(pair), *listeners(pair), pair.process.pid):
        os.kill(process, signal.SIGTERM)

    assert pair.wait() == 0

    assert times_logged(pair, "stopped") == stopped + 2
    eventually(lambda: have_ended(processes), "the processes have ended")
    assert not folder.exists()


@only_full
def test_processes_end_when_their_supervisor_is_killed(server: Server) -> None:
    """Otherwise they would hold the address, with nothing to replace or stop them."""
    processes = listeners(server)
    server.kill()

    eventually(lambda: have_ended(processes), "the processes have ended")
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.url}/healthz", trust_env=False)


def test_a_wrong_setting_is_one_error_as_with_one_process(home: Home) -> None:
    ran = home.order("serve", "--workers", "2", "--json", oauth_google_client_id="half-of-it")

    assert ran.code == 1
    assert "COUNTERSIGN_OAUTH_GOOGLE_CLIENT_SECRET" in ran.refusal


@only_full
def test_metrics_need_no_room_after_the_start(server: Server) -> None:
    """prometheus_client maps sparse files; on a full disk a write to one ends the process."""
    ask_often(server)

    def mapped(process: int) -> set[Path]:
        return {
            Path(line.split(maxsplit=5)[5])
            for line in Path(f"/proc/{process}/maps").read_text().splitlines()
            if "countersign-metrics-" in line
        }

    def counts(process: int) -> bool:
        return "counter" in {path.name.rsplit("_", 1)[0] for path in mapped(process)}

    eventually(lambda: len(listeners(server)) == 2, "both processes listen")
    for process in listeners(server):
        eventually(partial(counts, process), "the process counts")
        for path in mapped(process):
            status = path.stat()
            assert status.st_blocks * 512 >= status.st_size


def stop_once(is_so: Callable[[], object]) -> None:
    """SIGTERM to this process once `is_so`."""

    def stop() -> None:
        eventually(is_so, "what is waited for")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()


def test_a_process_that_is_killed_before_it_serves_is_replaced(tmp_path: Path) -> None:
    """The node is not gone because a machine was short of memory for a moment."""
    stop_once((tmp_path / "serves").exists)

    assert Supervisor(partial(die_at_the_first_start, tmp_path), 1, grace_s=5).run() == 0


@only_full
def test_a_process_that_fails_beside_one_that_serves_is_replaced(tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    stop_once(lambda: failed.exists() and len(failed.read_text()) >= 2)

    assert Supervisor(partial(fail_beside_one_that_serves, tmp_path), 2, grace_s=5).run() == 0


@only_full
def test_a_process_that_never_serves_ends_them_all() -> None:
    assert Supervisor(end_at_once, 2, grace_s=5).run() == 3


@only_full
def test_a_process_that_keeps_dying_is_replaced_ever_later() -> None:
    """Each start imports the whole service: one a second would take a core for nothing."""
    supervisor = Supervisor(end_after_serving, 1, grace_s=5)
    with capture_logs() as lines:

        def deaths() -> list[Any]:
            return [line for line in lines if line["event"] == "serving_process_died"]

        def stop_after_two() -> None:
            eventually(lambda: len(deaths()) >= 2, "two deaths")
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=stop_after_two, daemon=True).start()
        assert supervisor.run() == 0

    assert [line["next_start_in_s"] for line in deaths()][:2] == [1, 2]
    assert {line["exit_code"] for line in deaths()} == {-signal.SIGKILL}


@only_full
def test_a_start_that_fails_is_tried_again_and_the_others_are_ended(monkeypatch: Any) -> None:
    """The machine may be out of processes for a moment."""
    supervisor = Supervisor(end_at_once, 1, grace_s=5)
    context = get_context("forkserver")
    starts: list[int] = []

    def start(process: Any) -> None:
        starts.append(1)
        if len(starts) == 1:
            raise OSError(errno.EAGAIN, "no more processes")
        real(process)

    real = context.Process.start
    monkeypatch.setattr(context.Process, "start", start)

    assert supervisor.run() == 3
    assert len(starts) == 2


@pytest.mark.timeout(HANG_S)
def test_a_process_whose_loop_does_not_turn_is_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its stacks in the log: what held it must be found."""
    stop_once((tmp_path / "replaced").exists)

    supervisor = Supervisor(partial(hold_the_loop, tmp_path), 1, grace_s=5, stall_s=1.0)

    assert supervisor.run() == 0
    assert " in hold\n" in capfd.readouterr().err
