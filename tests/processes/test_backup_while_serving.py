"""Backup and restore: what is in a backup of a running service, and what comes back."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.budgets import only_full
from tests.conftest import binding_body, bindings_path
from tests.processes.homes import Home, Server, all_bindings, all_entries, eventually

pytestmark = pytest.mark.slow

EAGER = {"seal_rows": "1", "seal_interval_s": "0.05", "sweep_interval_s": "0.05"}
"""A sealer at work all the time, so that files appear while the backup is taken."""

INGEST = "/api/v1/admin/orgs/acme/audit/events"
BATCH = 20


def back_up(home: Home, backup: Path) -> None:
    assert home.run("backup", str(backup)).code == 0


def put_back(home: Home, backup: Path) -> None:
    """The secrets stay in the environment."""
    assert home.run("restore", "--force", str(backup)).code == 0
    assert home.run("audit", "check").code == 0


def create(home_client, number: int) -> None:
    body = binding_body(sub_pattern=f"repo:acme/{number}", repository_id=number + 1)
    assert home_client.post(bindings_path(), json=body).status_code == 201


class IngestPrincipal(threading.Thread):
    """Sends batch after batch of rows, and knows which were acknowledged."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.sent: list[str] = []
        self.stop = threading.Event()
        self._server = server

    def run(self) -> None:
        with self._server.client() as client:
            while not self.stop.is_set():
                names = [f"package-{len(self.sent) + number}" for number in range(BATCH)]
                self.sent += names
                items = [{"event": "install_allowed", "packageName": name} for name in names]
                assert client.post(INGEST, json=items).json()["accepted"] == BATCH
                self.acknowledged += names


@only_full
@pytest.mark.sqlite_only(reason="restores over what is there; see test_postgresql.py")
def test_a_restored_backup_is_the_state_it_was_taken_of(home: Home, tmp_path: Path) -> None:
    """The killed service leaves its write-ahead log behind, which must not come back to life."""
    backup = tmp_path / "backup"
    with home.serve(**EAGER).client() as client:
        for number in range(5):
            create(client, number)
        back_up(home, backup)
        before = {binding["id"] for binding in all_bindings(client)}
        for number in range(5, 10):
            create(client, number)
    home.servers[-1].kill()

    put_back(home, backup)

    with home.serve().client() as client:
        assert {binding["id"] for binding in all_bindings(client)} == before
        created = [row["subject"] for row in all_entries(client, event="oidc_binding_created")]
        assert sorted(created) == sorted(before)
        create(client, 10)
        assert len(all_bindings(client)) == 6


@pytest.mark.sqlite_only(reason="restores over what is there; see test_postgresql.py")
@only_full
def test_every_row_acknowledged_before_a_backup_is_in_it_once(home: Home, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    server = home.serve(**EAGER)
    principal = IngestPrincipal(server)
    principal.start()
    eventually(lambda: len(list(home.data_dir.rglob("*.parquet"))) > 3, "some segments")
    before = list(principal.acknowledged)
    back_up(home, backup)
    during = len(principal.acknowledged) - len(before)
    principal.stop.set()
    principal.join()
    server.kill()

    put_back(home, backup)

    with home.serve().client() as client:
        restored = Counter(
            row["packageName"] for row in all_entries(client, event="install_allowed", limit=997)
        )
    assert set(before) <= restored.keys() <= set(principal.sent)
    assert set(restored.values()) == {1}
    assert before
    assert during > 0, "nothing came in while the backup was taken"
    assert list(backup.rglob("*.parquet"))
