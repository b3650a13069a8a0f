"""Background work is done beside the processes that serve, whatever becomes of either."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.parser import text_string_to_metric_families

from analytics.model.instants import format_us
from service.app.supervisor import OVERDUE, Supervisor
from service.audit.maintenance import OVERDUE_MIN_S
from service.core.clock import utc_now
from tests.budgets import only_full, sample
from tests.conftest import SCRAPER
from tests.polling import eventually
from tests.proc_files import descendants, is_paused
from tests.processes.homes import Home, Server, all_entries
from tests.processes.supervised import note_and_end, serve_until_ended

PATH = "/api/v1/admin/orgs/acme/audit/events"
EAGER = {
    "seal_rows": "1",
    "seal_interval_s": "0.05",
    "compact_quiet_s": "0.01",
    "sweep_interval_s": "0.05",
}
"""Every day with rows is due, and every closed day of two segments."""

JOURNAL_MAX = 20_000
"""Rows that wait to be sealed, before more are refused."""

OF_EACH_PROCESS = {
    "count_uses",
    "record_key_uses",
    "record_rejections",
    "record_reads",
    "renew_keys",
    "verify_suspects",
    "ask_registries_again",
}
pytestmark = pytest.mark.usefixtures("own_forkserver")
WORKERS = pytest.mark.parametrize("workers", [pytest.param("1", marks=only_full), "2"])


class Sender:
    """Sends rows of the day before yesterday, and knows what was accepted."""

    def __init__(self) -> None:
        self.accepted: list[str] = []

    def send(self, server: Server, requests: int = 1) -> None:
        day = format_us(utc_now() - timedelta(days=2))
        with server.client() as client:
            for _ in range(requests):
                names = [f"package-{len(self.accepted) + number}" for number in range(25)]
                items = [
                    {"event": "install_allowed", "packageName": name, "created_at": day}
                    for name in names
                ]
                answer = client.post(PATH, json=items)
                assert answer.json() == {"accepted": 25, "rejected": []}
                self.accepted += names

    def send_and_wait(self, server: Server, requests: int) -> None:
        """As `send`, with a segment for each request."""
        for _ in range(requests):
            self.send(server)
            eventually(lambda: metric(server, "countersign_journal_rows") == 0, "an empty journal")

    def check(self, server: Server) -> None:
        """Every accepted row is there, and once."""
        with server.client() as client:
            rows = all_entries(client, event="install_allowed", limit=500)
        assert sorted(row["packageName"] for row in rows) == sorted(self.accepted)


def mapped(server: Server) -> str:
    """The files that the process has in memory, and where."""
    return Path(f"/proc/{server.process.pid}/maps").read_text()


def metrics_folder(server: Server) -> Path:
    """Where the processes of the server count together."""
    maps = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    process = server.process.pid
    if not any("countersign-metrics-" in line for line in maps):  # a supervisor that serves nothing
        process = next(
            child
            for child in descendants(process)
            if "countersign-metrics-" in Path(f"/proc/{child}/maps").read_text()
        )
        maps = Path(f"/proc/{process}/maps").read_text().splitlines()
    (folder,) = {
        Path(line.split(maxsplit=5)[5]).parent for line in maps if "countersign-metrics-" in line
    }
    return folder


def process_named(server: Server, name: str) -> int:
    """The id of the process that counts under `name`, once it runs."""
    file = metrics_folder(server) / f"{name}.pid"

    def is_running() -> int:
        noted = file.read_text().strip()
        return int(noted) if noted and Path(f"/proc/{noted}").exists() else 0

    return eventually(is_running, f"the process {name}")


def metric(server: Server, name: str) -> float:
    with server.client(headers=SCRAPER) as client:
        families = text_string_to_metric_families(client.get("/metrics").text)
        (value,) = {one.value for family in families for one in family.samples if one.name == name}
    return value


def is_sealed_and_merged(server: Server) -> bool:
    """True once the journal is empty, and the day of the sender one segment, as today."""
    return (
        metric(server, "countersign_journal_rows") == 0
        and metric(server, "countersign_segments") == 2
    )


def jobs_of(folder: Path, name: str) -> set[str]:
    """The jobs that the process `name` has."""
    entries = MmapedDict.read_all_values_from_file(str(folder / f"counter_{name}.db"))
    keys = [entry[0] for entry in entries]
    return {
        key.split('"task": "')[1].split('"')[0]
        for key in keys
        if "countersign_maintenance_failures_total" in key and '"task": "' in key
    }


@WORKERS
def test_rows_are_sealed_and_merged_by_processes_that_serve_nothing(
    home: Home, workers: str
) -> None:
    server, sender = home.serve(**EAGER, workers=workers), Sender()
    sender.send_and_wait(server, 3)

    eventually(lambda: is_sealed_and_merged(server), "one segment a day")

    eventually(lambda: "segments_merged" in server.logged(), "the line that follows the commit")
    sender.check(server)
    folder = metrics_folder(server)
    for number in range(int(workers)):
        assert jobs_of(folder, str(number)) == OF_EACH_PROCESS
    assert jobs_of(folder, "seal") == {"seal", "sign_checkpoints"}
    assert jobs_of(folder, "streams") == {"deliver_streams"}
    assert {"compact", "index", "prune", "publish_lake", "scrub"} <= jobs_of(folder, "maintenance")


def test_a_request_that_fills_the_journal_has_it_sealed_at_once(home: Home) -> None:
    """The process that knows of it does not seal."""
    server, sender = home.serve(seal_rows="1", seal_interval_s="80000"), Sender()
    eventually(lambda: metric(server, "countersign_segments") == 1, "the first look")

    sender.send(server, 2)

    eventually(lambda: metric(server, "countersign_journal_rows") == 0, "an empty journal")
    sender.check(server)


def test_only_sealing_and_streams_compete_for_the_processor(home: Home) -> None:
    server = home.serve()
    own = os.getpriority(os.PRIO_PROCESS, server.process.pid)
    seal, rest = process_named(server, "seal"), process_named(server, "maintenance")

    eventually(lambda: os.sched_getscheduler(rest) == os.SCHED_IDLE, "the idle class")
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, seal) == own + 5, "niceness 5")
    streams = process_named(server, "streams")
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, streams) == own + 10, "niceness 10")
    assert os.sched_getscheduler(streams) == os.SCHED_OTHER
    assert os.sched_getscheduler(seal) == os.SCHED_OTHER
    assert os.sched_getscheduler(server.process.pid) == os.SCHED_OTHER


@sample(2)
@pytest.mark.parametrize("name", ["seal", "streams", "maintenance"])
def test_one_that_is_killed_is_replaced_and_goes_on(home: Home, name: str) -> None:
    server, sender = home.serve(**EAGER), Sender()
    sender.send_and_wait(server, 3)
    killed = process_named(server, name)

    os.kill(killed, signal.SIGKILL)

    sender.send(server, 3)
    eventually(lambda: process_named(server, name) != killed, "another process")
    eventually(lambda: is_sealed_and_merged(server), "one segment a day")
    sender.check(server)
    died = [line for line in server.log_lines() if line["event"] == "background_process_died"]
    assert [(line["name"], line["exit_code"]) for line in died] == [(name, -signal.SIGKILL)]
    assert server.stop() == 0


@WORKERS
def test_all_end_when_the_service_is_killed(home: Home, workers: str) -> None:
    server = home.serve(**EAGER, workers=workers)
    Sender().send(server, 3)
    folder = metrics_folder(server)
    processes = descendants(server.process.pid)
    assert {process_named(server, name) for name in ("seal", "streams", "maintenance")} <= processes

    server.kill()

    eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in processes), "their ends")
    assert not folder.exists()


def test_one_that_is_killed_as_it_starts_leaves_no_files(home: Home) -> None:
    """They take memory, and what is started again and again would use up all of it."""
    server = home.start()
    eventually(lambda: "countersign-metrics-" in mapped(server), "files", every_s=0.001)
    folder = metrics_folder(server)

    server.kill()

    eventually(lambda: not folder.exists(), "no folder")
    assert not folder.exists()
    assert server.process.returncode == -signal.SIGKILL


def test_files_of_a_service_that_was_killed_whole_are_removed_by_the_next(
    home: Home, quiet_server: Server
) -> None:
    held = metrics_folder(quiet_server)
    abandoned, new = (
        Path(tempfile.mkdtemp(prefix="countersign-metrics-", dir=held.parent)) for _ in range(2)
    )
    for folder in (held, abandoned):
        os.utime(folder, (0, 0))
    try:
        home.serve()

        assert not abandoned.exists()
        assert held.exists()
        assert new.exists()
    finally:
        new.rmdir()


@pytest.mark.parametrize("workers", [pytest.param("1", marks=only_full), "2"])
def test_all_end_in_order_while_there_is_work(home: Home, workers: str) -> None:
    server, sender = home.serve(**EAGER, workers=workers), Sender()
    sender.send(server, 10)
    folder, processes = metrics_folder(server), descendants(server.process.pid)

    assert server.stop() == 0

    eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in processes), "their ends")
    assert not folder.exists()
    assert "killed" not in server.logged()
    assert "Traceback" not in server.logged()
    sender.check(home.serve(**EAGER))


def test_a_service_has_stopped_once_its_background_has(home: Home) -> None:
    """What reads the log until `stopped` has then read all of it."""
    server = home.serve()
    late = process_named(server, "maintenance")
    os.kill(late, signal.SIGSTOP)
    eventually(lambda: is_paused(late), "a process that waits")
    server.terminate()
    eventually(lambda: not server.is_listening(), "no new connections")

    assert "stopped" not in [line["event"] for line in server.log_lines()]
    os.kill(late, signal.SIGCONT)

    assert server.wait() == 0
    assert server.log_lines()[-1]["event"] == "stopped"


def test_those_that_end_early_end_nothing_else(tmp_path: Path) -> None:
    """One whose jobs are overdue is started as such, and stays so."""
    expected = {
        OVERDUE: ["idle", "overdue", "overdue"],
        3: ["idle", "idle", "idle"],
    }
    folders = {code: tmp_path / str(code) for code in expected}
    for folder in folders.values():
        folder.mkdir()

    def stop() -> None:
        for folder in folders.values():
            eventually((folder / "third").exists, "the third start")
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=stop, daemon=True).start()
    background = {
        f"ends with {code}": partial(note_and_end, folder, code) for code, folder in folders.items()
    }
    supervisor = Supervisor(partial(serve_until_ended, tmp_path), 1, 5.0, background=background)

    assert supervisor.run() == 0

    for code, starts in expected.items():
        assert (folders[code] / "starts").read_text().splitlines() == starts


def has_swept(server: Server) -> bool:
    """True once the last job on segments has run: the process then waits, and holds no lock."""
    with server.client(headers=SCRAPER) as client:
        shown = client.get("/metrics").text
    name = "countersign_maintenance_last_success_timestamp_seconds"
    return f'{name}{{task="delete_expired_answers"}}' in shown


@contextmanager
def full_load(server: Server, senders: Sequence[Sender]) -> Iterator[Callable[[], None]]:
    """All cores are wanted by others during the block, and each of `senders` sends all the time.

    What it gives fails as a sender has failed, such as by a 429.
    """
    done = Event()

    def send(sender: Sender) -> None:
        while not done.is_set():
            sender.send(server)

    cores = os.sched_getaffinity(0)
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in cores]
    with ThreadPoolExecutor(len(senders)) as pool:
        sending = [pool.submit(send, sender) for sender in senders]

        def check() -> None:
            for one in sending:
                if one.done():
                    one.result()

        try:
            yield check
        finally:
            done.set()
            for process in burning:
                process.kill()
                process.wait()
    check()


@only_full
@pytest.mark.slow
def test_a_full_load_keeps_neither_sealing_nor_merging_from_their_work(home: Home) -> None:
    """The journal is sealed before a request is refused, and what is overdue leaves the idle class.

    How much of a busy machine `maintenance` gets is up to the system: here it gets nothing, until
    its jobs are overdue.
    """
    settings = EAGER | {"seal_rows": "2000", "seal_age_s": "5", "seal_interval_s": "1"}
    server = home.serve(**settings, ingest_journal_rows_max=str(JOURNAL_MAX))
    idle = process_named(server, "maintenance")
    eventually(lambda: has_swept(server), "a first round of all jobs")
    assert os.sched_getscheduler(idle) == os.SCHED_IDLE
    senders, begins_at = [Sender(), Sender()], time.monotonic()

    def has_waited() -> bool:
        load()
        sent = sum(len(sender.accepted) for sender in senders)
        return sent > 3 * JOURNAL_MAX and time.monotonic() - begins_at > OVERDUE_MIN_S

    with full_load(server, senders) as load:
        os.kill(idle, signal.SIGSTOP)
        try:
            eventually(has_waited, "more rows than the journal holds")
            assert "segments_merged" not in server.logged()
        finally:
            os.kill(idle, signal.SIGCONT)
        eventually(lambda: "segments_merged" in server.logged(), "a merge")

    died = [line for line in server.log_lines() if line["event"] == "background_process_died"]
    assert [(line["name"], line["exit_code"]) for line in died] == [("maintenance", OVERDUE)]
    eventually(lambda: metric(server, "countersign_journal_rows") == 0, "an empty journal")
    with server.client() as client:
        rows = all_entries(client, event="install_allowed", limit=500)
    accepted = [name for sender in senders for name in sender.accepted]
    assert sorted(row["packageName"] for row in rows) == sorted(accepted)


@pytest.mark.slow
@sample(2)
@pytest.mark.parametrize("round_number", range(5))
def test_a_stop_right_after_the_start_is_in_order(home: Home, round_number: int) -> None:
    server = home.serve()

    assert server.stop() == 0

    assert "Traceback" not in server.logged()
