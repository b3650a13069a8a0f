"""Storage that fails: said as 503, seen by /readyz, and over when the storage is back."""

import fcntl
import sqlite3
import threading
from contextlib import closing, contextmanager

import httpx2
import pytest

from service.core.errors import SEGMENT_DAMAGED, STORAGE_DAMAGED, StorageBusy
from tests.budgets import only_full
from tests.conftest import binding_body, bindings_path
from tests.other_programs import write_lock
from tests.processes.homes import Home, all_bindings, all_entries, eventually, segment_of

pytestmark = pytest.mark.slow

BUSY = (503, {"error": StorageBusy.text})


@contextmanager
def locked_exclusively(home: Home):
    """Keep every other connection out of the database, readers too.

    SQLite's readers each lock a byte of the shared-memory file; here are all of them.
    """
    with (home.data_dir / "countersign.db-shm").open("r+b") as shared:
        eventually(lambda: _is_locked(shared), "no reader in a transaction")
        yield


def _is_locked(file) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, 120)
    except OSError:
        return False
    return True


TRIES = 5
"""A busy machine may send the second request only after the first one has its answer."""


def answers_meanwhile(waiting: httpx2.Client, other: httpx2.Client) -> bool:
    """True if the process answers `other` before it has an answer to `waiting`'s /readyz."""
    asking = threading.Thread(target=lambda: waiting.get("/readyz"))
    asking.start()
    assert other.get("/healthz").status_code == 200
    is_first = asking.is_alive()
    asking.join()
    return is_first


@only_full  # SQLite takes ten seconds to give up
@pytest.mark.sqlite_only(reason="readers lock bytes of a file; a paused server is tested instead")
def test_a_locked_database_is_not_ready_and_ready_again_without_a_restart(home):
    """An orchestrator must stop sending requests, and must not kill the process for it."""
    server = home.serve(database_wait_s="0.5")
    with server.client() as client, server.client() as other:
        with locked_exclusively(home):
            assert any(answers_meanwhile(client, other) for _ in range(TRIES)), (
                "a waiting database blocks the event loop"
            )
            answer = client.get("/readyz")
        assert answer.status_code == 503
        assert list(answer.json()) == ["error"]
        eventually(lambda: client.get("/readyz").status_code == 200, "ready again")
        assert client.post(bindings_path(), json=binding_body()).status_code == 201
    reasons = [line["reason"] for line in server.log_lines() if "reason" in line]
    assert "no answer within 2 s" in reasons, "SQLite itself takes ten seconds to give up"


def test_a_held_write_lock_refuses_changes_and_nothing_else(home):
    """A change that cannot be committed is a 503 that changed nothing; readers do not notice."""
    server = home.serve(database_wait_s="1")
    with server.client() as client, write_lock(home.data_dir) as release:
        answer = client.post(bindings_path(), json=binding_body())
        assert (answer.status_code, answer.json()) == BUSY
        assert all_bindings(client) == []
        assert client.get("/readyz").status_code == 200
        release()

        assert client.post(bindings_path(), json=binding_body()).status_code == 201
        assert len(all_entries(client, event="oidc_binding_created")) == 1


def test_a_data_dir_that_is_gone_is_not_ready_until_it_is_back(home):
    server = home.serve(seal_rows="1", seal_interval_s="0.05")
    with server.client() as client:
        assert client.get("/readyz").status_code == 200
        eventually(lambda: "segment_sealed" in server.logged(), "acme's first row sealed")
        damaged = SEGMENT_DAMAGED(value=segment_of(home).stem).text
        away = home.data_dir.rename(home.folder / "away")
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert list(answer.json()) == ["error"]
        assert client.get("/healthz").status_code == 200
        page = client.get("/api/v1/admin/orgs/acme/audit")
        assert (page.status_code, page.json()) == (503, {"error": damaged})

        away.rename(home.data_dir)
        assert client.get("/readyz").status_code == 200
        assert client.post(bindings_path(), json=binding_body()).status_code == 201
        assert [row["event"] for row in all_entries(client)] == [
            "oidc_binding_created",
            "org_created",
        ]
    assert server.stop() == 0


@pytest.mark.sqlite_only(reason="locks the whole file")
def test_a_server_does_not_start_on_a_database_it_cannot_have(home):
    """One line and exit code 3: a supervisor tries again, and a person can read why."""
    with closing(sqlite3.connect(home.database, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        served = home.run("serve", database_wait_s="0.2")
        others = [
            home.order(*words, database_wait_s="0.2") for words in (["init"], ["org", "list"])
        ]
    for ran in (served, *others):
        assert (ran.code, ran.refusal) == (3, f"{StorageBusy.text} (database is locked)")


@pytest.mark.sqlite_only(reason="damages the file")
def test_a_damaged_database_is_a_fault_and_not_an_empty_one(home):
    home.database.write_bytes(b"not a database, and long enough to be taken for one\n" * 100)
    for ran in (home.run("serve"), home.order("init"), home.order("org", "list")):
        assert (ran.code, ran.refusal) == (3, f"{STORAGE_DAMAGED.text} (file is not a database)")
