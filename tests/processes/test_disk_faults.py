"""A disk that is full, or takes no more writes: said plainly, and nothing acknowledged is lost.

The disk is a real one, a small tmpfs; mounting it takes root, which the machine of CI has.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.core.errors import STORAGE_READ_ONLY, StorageFull
from service.core.exit_codes import ExitCode
from tests.conftest import binding_body, bindings_path
from tests.processes.homes import Home, Server, add_acme, all_entries, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

EVENTS = "/api/v1/admin/orgs/acme/audit/events"
DISK_MB = 12
BALLAST_MB = 7
BATCH = 200
FULL = (507, {"error": StorageFull.text})


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@pytest.fixture
def disk(empty_home: Home) -> Iterator[Path]:
    """The data dir as a disk of its own."""
    empty_home.data_dir.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_MB}m", "countersign-test", str(empty_home.data_dir))
    try:
        yield empty_home.data_dir
    finally:
        empty_home.end()
        subprocess.run(["umount", "--lazy", str(empty_home.data_dir)], check=True)


@pytest.fixture
def small_home(empty_home: Home, disk: Path) -> Home:
    """Acme on a disk with some ballast that can be thrown off."""
    empty_home.change(add_acme)
    (disk / "ballast").write_bytes(b"\0" * BALLAST_MB * 2**20)
    return empty_home


def batch(number: int) -> list[dict[str, Any]]:
    return [
        {
            "event": "oss_first_party",
            "packageName": f"p{number}/{n}",
            "version": os.urandom(100).hex(),  # nothing that would compress
            "envelope": {"registry": "https://registry.example"},
        }
        for n in range(BATCH)
    ]


def send(client: httpx2.Client, number: int, items: list[dict[str, Any]]) -> httpx2.Response:
    return client.post(EVENTS, json=items, headers={"idempotency-key": f"batch-{number}"})


def fill(client: httpx2.Client, first: int = 0) -> tuple[list[str], int, list[dict[str, Any]]]:
    """Send until the disk is full: the packages acknowledged, and the batch that was not."""
    acknowledged: list[str] = []
    for number in range(first, first + 1_000):
        items = batch(number)
        answer = send(client, number, items)
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()) == FULL
            return acknowledged, number, items
        acknowledged += [item["packageName"] for item in items]
    raise AssertionError("the disk never got full")


def plug(disk: Path) -> None:
    """Take what room is left."""
    with (disk / "plug").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def refused_binding(client: httpx2.Client, disk: Path) -> dict[str, Any]:
    """The first binding that finds no room.

    A seal under way gives room back once it has failed, and one more may fit there.
    """
    for number in range(1_000):
        plug(disk)
        body = binding_body(sub_pattern=f"repo:acme/full/{number}")
        answer = client.post(bindings_path(), json=body)
        if answer.status_code != 201:
            assert (answer.status_code, answer.json()) == FULL
            return body
    raise AssertionError("the disk never got full")


def packages(client: httpx2.Client) -> list[str]:
    rows = all_entries(client, event="oss_first_party", limit=1000)
    return sorted(row["packageName"] for row in rows)


def reasons(server: Server, event: str) -> set[str]:
    return {line["reason"] for line in server.log_lines() if line["event"] == event}


@pytest.mark.sqlite_only(reason="fills the disk of the file")
@pytest.mark.parametrize(
    "sealing",
    [{"seal_rows": "1000000"}, {"seal_rows": "1", "seal_interval_s": "0.05"}],
    ids=["journal", "segments"],
)
def test_a_full_disk_is_a_507_and_loses_nothing(small_home, disk, sealing):
    server = small_home.serve(**sealing)
    with server.client() as client:
        acknowledged, number, _ = fill(client)
        body = refused_binding(client, disk)
        more, number, items = fill(client, number)
        acknowledged += more
        assert packages(client) == sorted(acknowledged)
        eventually(lambda: client.get("/readyz").status_code == 507, "not ready")
        assert client.get("/healthz").status_code == 200
        assert "database or disk is full" in reasons(server, "store_unavailable")

        (disk / "ballast").unlink()
        eventually(lambda: client.get("/readyz").status_code == 200, "ready again")
        assert send(client, number, items).status_code == 200
        assert client.post(bindings_path(), json=body).status_code == 201
        acknowledged += [item["packageName"] for item in items]
        assert packages(client) == sorted(acknowledged)
    assert server.stop() == 0

    small_home.ask("audit", "seal")
    with small_home.serve().client() as client:
        assert packages(client) == sorted(acknowledged)
        assert not list(disk.rglob("*.pending"))


def test_a_segment_that_does_not_fit_leaves_its_rows_in_the_journal(small_home, disk):
    server = small_home.serve(seal_rows="1000000")
    with server.client() as client:
        acknowledged = [item["packageName"] for n in range(4) for item in sent(client, n)]
    server.stop()
    left = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(b"\0" * (left.f_bavail * left.f_frsize - 96 * 1024))

    refused = small_home.order("audit", "seal")

    assert refused.code == ExitCode.UNAVAILABLE
    said = refused.err.splitlines()[-1]
    assert said.startswith(f"countersign: {StorageFull.text} (")
    assert "No space left on device" in said
    assert not list(disk.rglob("*.pending"))
    filler.unlink()
    assert small_home.ask("audit", "seal")["rows"] >= len(acknowledged)
    with small_home.serve().client() as client:
        assert packages(client) == sorted(acknowledged)


def is_turned_read_only(disk: Path) -> bool:
    """Mount it once more, and that read-only; which fails while the server writes a file there."""
    mount("--bind", str(disk), str(disk))
    turned = subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=False)
    if turned.returncode != 0:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    return turned.returncode == 0


def sent(client: httpx2.Client, number: int) -> list[dict[str, Any]]:
    """A batch that was taken."""
    items = batch(number)
    assert send(client, number, items).status_code == 200
    return items


def test_a_disk_that_turns_read_only_is_said_so_and_is_well_again_afterwards(small_home, disk):
    server = small_home.serve(seal_rows="1", seal_interval_s="0.05")
    with server.client() as client:
        acknowledged = [item["packageName"] for item in sent(client, 0)]
        eventually(lambda: is_turned_read_only(disk), "no file of it being written")
        try:
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()) == (503, {"error": STORAGE_READ_ONLY.text})
            assert packages(client) == sorted(acknowledged)
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
        eventually(lambda: client.get("/readyz").status_code == 200, "ready again")
        acknowledged += [item["packageName"] for item in sent(client, 1)]
        assert packages(client) == sorted(acknowledged)


def test_a_server_does_not_start_on_a_disk_it_cannot_write_to(small_home, disk):
    with small_home.serve().client() as client:
        acknowledged = [item["packageName"] for item in sent(client, 0)]
    small_home.servers[-1].stop()
    mount("-o", "remount,ro", str(disk))

    refused = small_home.run("serve")
    queried = small_home.order("audit", "query", "--org", "acme")

    mount("-o", "remount,rw", str(disk))
    for ran in (refused, queried):
        said = f"{STORAGE_READ_ONLY.text} ({disk} cannot be written to)"
        assert (ran.code, ran.refusal) == (ExitCode.UNAVAILABLE, said)
    with small_home.serve().client() as client:
        assert packages(client) == sorted(acknowledged)
