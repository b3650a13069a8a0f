"""The backup and restore of the operations page, run as they stand there."""

import re
import subprocess
from pathlib import Path

import pytest

from service.settings import REPOSITORY
from tests.conftest import binding_body, bindings_path
from tests.processes.homes import Home, all_bindings, all_entries

pytestmark = pytest.mark.slow


def blocks() -> list[str]:
    """The shell blocks of the backup section: taking one, and putting it back."""
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    section = page.split("## Backup and restore")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def paste(block: str, home: Home, backup: Path) -> None:
    """Run `block` as a reader would."""
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        env={"DATA": str(home.data_dir), "BACKUP": str(backup), "PATH": "/usr/bin:/bin"},
        timeout=30,
        check=True,
    )


def create(home_client, number: int) -> None:
    body = binding_body(sub_pattern=f"repo:acme/{number}", repository_id=number + 1)
    assert home_client.post(bindings_path(), json=body).status_code == 201


def test_a_restored_backup_is_the_state_it_was_taken_of(home: Home, tmp_path: Path) -> None:
    """Taken from a running service, put back after a kill -9: later changes are gone, and whole.

    The killed service leaves its write-ahead log behind, which must not come back to life.
    """
    take, put_back = blocks()
    backup = tmp_path / "backup"
    with home.serve(seal_rows="1", seal_interval_s="0.05").client() as client:
        for number in range(5):
            create(client, number)
        paste(take, home, backup)
        before = {binding["id"] for binding in all_bindings(client)}
        for number in range(5, 10):
            create(client, number)
    home.servers[-1].kill()

    paste(put_back, home, backup)

    with home.serve().client() as client:
        assert {binding["id"] for binding in all_bindings(client)} == before
        created = [row["subject"] for row in all_entries(client, event="oidc_binding_created")]
        assert sorted(created) == sorted(before)
        create(client, 10)
        assert len(all_bindings(client)) == 6
