"""A fleet for tests."""

from collections.abc import Iterator
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


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three nodes with the organisation acme; the clocks of two are off by ten minutes."""
    with running_fleet(tmp_path, (0, 600, -600), **EAGER) as running:
        running.run("org", "add", "acme", "--tier", "org")
        yield running
        for node in running.nodes:
            node.home.end()
