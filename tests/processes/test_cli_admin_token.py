"""`countersign admin-token` beside servers of several processes."""

import pytest

from tests.conftest import ADMIN_TOKEN, bindings_path
from tests.processes.homes import Home, Server

pytestmark = pytest.mark.slow

KEPT = {"admin_token": ""}
"""The token is in the data dir."""


def statuses(server: Server, token: str) -> set[int]:
    """What several connections are answered, of whichever processes."""
    found = set()
    for _ in range(8):
        with server.client(headers={"x-service-admin-token": token}) as client:
            found.add(client.get(bindings_path()).status_code)
    return found


def test_every_process_follows_a_rotation_without_a_restart(home: Home) -> None:
    servers = [home.serve(workers="2", **KEPT), home.serve(**KEPT)]
    old = (home.data_dir / "admin_token").read_text().strip()
    assert [statuses(server, old) for server in servers] == [{200}] * 2

    new = home.ask("admin-token", "rotate", **KEPT)["token"]
    assert [statuses(server, new) for server in servers] == [{200}] * 2
    assert [statuses(server, old) for server in servers] == [{200}] * 2

    home.ask("admin-token", "retire", **KEPT)
    assert [statuses(server, new) for server in servers] == [{200}] * 2
    assert [statuses(server, old) for server in servers] == [{401}] * 2
    assert new not in "".join(server.logged() for server in servers)


def test_a_token_in_the_environment_is_changed_there(home: Home) -> None:
    ran = home.order("admin-token", "rotate")

    assert ran.code == 1
    assert "the admin token is set by COUNTERSIGN_ADMIN_TOKEN: change it there" in ran.refusal
    assert ADMIN_TOKEN not in ran.refusal
