"""What a person at a terminal of 80 columns sees."""

import os
import pty
import re
import subprocess

import pytest

from service.cli.audit import row_line
from tests.conftest import ISSUER
from tests.interpreters import start_module
from tests.processes.homes import CLI, DEADLINE_S, Home

pytestmark = pytest.mark.slow

COLUMNS = 80
SUB = "repo:acme/payments:environment:production"


def seen(home: Home, *words: str, **variables: str) -> list[str]:
    """The lines on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = home.environment() | {"TERM": "xterm", "COLUMNS": str(COLUMNS)} | variables
    with os.fdopen(theirs, "wb") as terminal:
        process = start_module(CLI, *words, env=env, stdout=terminal, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=DEADLINE_S)
    shown = b""
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.returncode == 0, err
    return shown.decode().splitlines()


@pytest.fixture
def bound(home: Home) -> Home:
    add = ("bindings", "add", "--org", "acme", "--issuer", ISSUER, "--sub", SUB)
    home.ask(*add, "--repository-id", "42")
    return home


def test_lists_fit_with_whole_ids_and_times_as_people_say_them(bound):
    (binding,) = bound.listed("bindings", "list", "--org", "acme")
    entries = bound.ask("audit", "query", "--org", "acme")["entries"]
    bindings = seen(bound, "bindings", "list", "--org", "acme", NO_COLOR="1")
    rows = seen(bound, "audit", "query", "--org", "acme")
    exact = seen(bound, "bindings", "list", "--org", "acme", "--utc", NO_COLOR="1")

    for lines in (bindings, rows, exact):
        plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
        assert max(map(len, plain)) <= COLUMNS, plain
    text = "\n".join(bindings)
    assert binding["id"] in text
    assert SUB in text
    assert re.search(r"\d+ s ago", text)
    assert "\x1b" not in text
    assert binding["addedAt"] in "\n".join(exact)
    assert "\x1b[1m" in rows[0]
    assert all(entry["id"] in "\n".join(rows) for entry in entries)


def test_a_row_of_a_list_that_grows_is_one_line(bound):
    (row, *_) = bound.ask("audit", "query", "--org", "acme")["entries"]
    line = row_line(row | {"decision": "BLOCKED", "packageName": "a\nb", "version": "1"}, None)

    assert "\n" not in line
    assert "a\\nb@1" in line
    assert row["id"] in line
    assert "\x1b" not in line
