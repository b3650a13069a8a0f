"""`countersign serve --workers N`: several processes behind one address behave as one server."""

import errno
import json
import os
import signal
import subprocess
import sys
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
from service.app.watchdog import Serving
from tests.budgets import only_full
from tests.conftest import SCRAPER, binding_body, bindings_path
from tests.polling import HANG_S
from tests.proc_files import descendants, open_names
from tests.processes.homes import Home, Server, all_bindings, all_entries, eventually
from tests.processes.test_maintenance_processes import metrics_folder

pytestmark = pytest.mark.usefixtures("own_forkserver")
REQUESTS = 60


@pytest.fixture
def server(home: Home) -> Server:
    return home.serve(workers="2")


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


def test_a_process_that_dies_is_replaced_and_loses_nothing_durable(server: Server) -> None:
    """What was answered 201 is there; the counts of the dead process stay in the sum.

    A signal to the supervisor then stops the new process as well.
    """
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
    processes = descendants(server.process.pid)
    assert server.stop() == 0
    eventually(lambda: have_ended(processes), "the processes have ended")


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
    serving = {"0", "1", "supervisor"}

    def shown() -> set[str]:
        return labels_shown(server, "process_resident_memory_bytes", "process")

    eventually(lambda: serving <= shown(), "each process is shown")
    assert {name.partition(".")[0] for name in shown()} == serving


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


def test_processes_are_replaced_when_what_they_were_forked_from_is_killed(home: Home) -> None:
    """The supervisor learns of their ends from it: it must not watch them in vain."""
    server = home.serve(workers="2")
    eventually(lambda: server.logged().count('"event": "serving"') == 2, "two processes that serve")
    before = listeners(server)
    killed = forked_from(server)

    os.kill(killed, signal.SIGKILL)

    eventually(lambda: have_ended(before), "the end of those that nothing watches")
    eventually(lambda: server.logged().count('"event": "serving"') == 4, "two others that serve")
    with server.client() as client:
        assert client.get("/readyz").status_code == 200
    assert forked_from(server) != killed
    processes = descendants(server.process.pid)
    assert server.stop() == 0
    eventually(lambda: have_ended(processes), "the processes have ended")


def test_a_process_that_learns_late_of_that_removes_no_files_of_those_that_follow(
    home: Home,
) -> None:
    """Without them no process could be started any more. To it the supervisor seems to be gone."""
    server = home.serve(workers="2")
    eventually(lambda: server.logged().count('"event": "serving"') == 2, "two processes that serve")
    before, folder = listeners(server), metrics_folder(server)
    files = {path.name for path in folder.iterdir()}
    late = min(before)
    os.kill(late, signal.SIGSTOP)
    os.kill(forked_from(server), signal.SIGKILL)
    eventually(lambda: server.logged().count('"event": "serving"') == 4, "two others that serve")

    os.kill(late, signal.SIGCONT)

    eventually(lambda: have_ended(before), "its end")
    assert {path.name for path in folder.iterdir()} == files
    assert server.stop() == 0
    assert not folder.exists()


def test_a_signal_to_all_processes_stops_them_in_order(home: Home) -> None:
    """As systemd sends it to each of a unit: the supervisor still waits for those that serve."""
    server = home.serve(workers="2")
    eventually(lambda: server.logged().count('"event": "serving"') == 2, "two processes that serve")
    processes = descendants(server.process.pid)
    for process in (forked_from(server), *listeners(server), server.process.pid):
        os.kill(process, signal.SIGTERM)

    assert server.wait() == 0

    assert [line["event"] for line in server.log_lines()].count("stopped") == 2
    eventually(lambda: have_ended(processes), "the processes have ended")


def test_what_is_loaded_before_a_fork_opens_nothing() -> None:
    """A fork would share open files with all others, and lack the threads."""
    program = """
import json, os, threading
from contextlib import suppress
before = set(os.listdir("/proc/self/fd"))
import service.app.preloaded
threads, files = [], []
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/comm") as file:
        threads.append(file.read().strip())
for name in set(os.listdir("/proc/self/fd")) - before:
    with suppress(FileNotFoundError):
        files.append(os.readlink(f"/proc/self/fd/{name}"))
print(json.dumps([threads, files, threading.active_count()]))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    threads, files, in_python = json.loads(ran.stdout)
    # Arrow's allocator has a thread of its own, and knows what to do at a fork.
    assert [name for name in threads if "jemalloc" not in name] == ["python"]
    assert files == []
    assert in_python == 1


def test_what_only_some_processes_need_is_not_loaded_before_a_fork() -> None:
    """It takes memory, and time at each start."""
    unneeded = ["rich.console", "webauthn", "alembic"]
    program = f"""
import sys
import service.app.preloaded
print({{name for name in {unneeded}}} & {{*sys.modules}})
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert ran.stdout == b"set()\n"


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


def end_at_once(number: int, serving: Serving) -> None:
    """A process that serves nothing."""
    raise SystemExit(3)


def end_after_serving(number: int, serving: Serving) -> None:
    """A process that dies of a signal as soon as it serves."""
    serving()
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_the_first_start(folder: Path, number: int, serving: Serving) -> None:
    """A process that is killed before it serves, as on a machine without memory; then it serves."""
    if not (folder / "started").exists():
        (folder / "started").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    serving()
    (folder / "serves").touch()
    signal.pause()


def fail_beside_one_that_serves(folder: Path, number: int, serving: Serving) -> None:
    """The first serves; the second fails each time, once the first serves."""
    if number == 0:
        serving()
        (folder / "serves").touch()
        signal.pause()
    eventually((folder / "serves").exists, "the first serves")
    with (folder / "failed").open("a") as file:
        file.write("x")
    raise SystemExit(3)


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


def hold_the_loop(folder: Path, number: int, serving: Serving) -> None:
    """A process whose loop turns once and is then held; the next one is well."""
    serving()
    serving.turns._count.value += 1
    if (folder / "held").exists():
        (folder / "replaced").touch()
        signal.pause()
    (folder / "held").touch()
    hold()


def hold() -> None:
    """The function that the stacks must name. SIGTERM does not end it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


@pytest.mark.timeout(HANG_S)
def test_a_process_whose_loop_does_not_turn_is_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its stacks in the log: what held it must be found."""
    stop_once((tmp_path / "replaced").exists)

    supervisor = Supervisor(partial(hold_the_loop, tmp_path), 1, grace_s=5, stall_s=1.0)

    assert supervisor.run() == 0
    assert " in hold\n" in capfd.readouterr().err


def test_a_stopped_process_is_replaced_and_the_others_serve_on(home: Home) -> None:
    server = home.serve(workers="2", stall_s="2")
    # A loop that has not begun to turn is not watched: a start may wait for its database.
    eventually(lambda: server.logged().count('"event": "serving"') == 2, "two processes that serve")
    (stopped, _) = sorted(listeners(server))
    os.kill(stopped, signal.SIGSTOP)

    eventually(lambda: have_ended({stopped}), "the end of the process that was stopped")
    eventually(lambda: len(listeners(server)) == 2, "two processes")
    assert "loop_stalled" in server.logged()
    assert all_bindings_are_answered(server)
    assert server.stop() == 0


def all_bindings_are_answered(server: Server) -> bool:
    """Whether requests succeed, whichever process gets each."""
    for _ in range(10):
        with server.client() as client:
            assert client.get(bindings_path()).status_code == 200
    return True
