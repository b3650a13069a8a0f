"""A command that ran within a test's own process leaves nothing behind in it."""

import logging
import os
import sys

import pytest
import structlog
from structlog.testing import capture_logs

pytestmark = pytest.mark.slow


def state_of_process() -> list[object]:
    """What commands change, or have changed for them."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("alembic", "httpx2")}
    streams = [sys.stdin, sys.stdout, sys.stderr]
    return [
        dict(os.environ),
        streams,
        root.handlers[:],
        root.level,
        levels,
        structlog.get_config(),
    ]


def test_a_command_leaves_the_process_as_it_was(quiet_home):
    """Otherwise the tests behind it would run with its settings."""
    before = state_of_process()

    assert quiet_home.order("org", "list").code == 0
    assert quiet_home.order("org", "add", "acme").code == 1

    assert state_of_process() == before


def test_what_a_command_logged_with_can_be_captured_afterwards(home):
    """A logger that kept a command's threshold would drop lines that other tests wait for."""
    home.ask("audit", "seal")
    home.ask("project", "add", "--org", "acme", "payments")

    with capture_logs() as logs:
        home.change(lambda services: services.sealer.seal_due(everything=True))

    assert "segment_sealed" in [line["event"] for line in logs]
