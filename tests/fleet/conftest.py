"""A fleet for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet, running_fleet

EAGER = {
    "seal_rows": "1",
    "seal_interval_s": "0.2",
    "compact_quiet_s": "0.5",
    "sweep_interval_s": "0.5",
    "orphan_grace_s": "30",
    "lease_s": "5",
    "database_wait_s": "2",
    "segments_wait_s": "2",
    "lake_formats": "iceberg",
    "lake_publish_interval_s": "2",
}
"""Sealing, merging and sweeping all the time, so that many faults hit them."""


@contextmanager
def fleet_of_acme(folder: Path, *clocks_off_s: float) -> Iterator[Fleet]:
    """Nodes with the organisation acme, the clocks of which are off by so much."""
    with running_fleet(folder, clocks_off_s, **EAGER) as running:
        running.run("org", "add", "acme", "--tier", "org")
        yield running
        for node in running.nodes:
            node.home.end()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three nodes; the clocks of two are off by ten minutes."""
    with fleet_of_acme(tmp_path, 0, 600, -600) as running:
        yield running


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes for the tests of a module, each of which leaves them working."""
    with fleet_of_acme(tmp_path_factory.mktemp("fleet"), 0, 0) as running:
        yield running
