"""Which queries are expected to read many rows."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from analytics.model.filters import parse_query
from analytics.query.cost import MANY_ROWS, is_long_count, is_long_page, reads_many
from analytics.storage.snapshot import Snapshot
from tests.analytics.samples import NOON, sample_row, sealed


@pytest.fixture
def large(tmp_path: Path) -> Snapshot:
    """A log whose catalog tells of many rows."""
    segment = replace(sealed(tmp_path, "seg_1", [sample_row()]), rows=MANY_ROWS + 1)
    return Snapshot(segment.tenant_id, segment.max_seq, (segment,), ())


@pytest.mark.parametrize(
    ("given", "is_long"),
    [
        ({}, False),
        ({"package": ["left-pad"]}, False),
        ({"decision": ["BLOCKED"]}, False),
        ({"actor": ["!key_1"]}, False),
        ({"package": ["left-*"]}, True),
        ({"source_ip": ["198.51.0.1"]}, True),
        ({"source_ip": ["198.51.0.1"], "package": ["left-pad"]}, False),
    ],
)
def test_a_page_is_long_if_no_index_knows_its_values(large, given, is_long):
    """They may be rare, and then every row is read."""
    assert is_long_page(large, parse_query(given)) is is_long


@pytest.mark.parametrize(
    ("given", "is_long"),
    [
        ({}, False),
        ({"event": ["blocklist_hit"]}, False),
        ({"package": ["left-pad"]}, True),
        ({"event": ["blocklist_hit"], "decision": ["BLOCKED"]}, True),
    ],
)
def test_a_count_is_long_if_the_catalog_does_not_know_it(large, given, is_long):
    """The catalog counts all rows, and those of one event or decision."""
    assert is_long_count(large, parse_query(given)) is is_long


def test_rows_outside_of_the_window_are_not_read(large):
    """A grouping of an hour is as quick in a large log as in a small one."""
    later = parse_query({"since": [(NOON + timedelta(days=1)).isoformat()]})

    assert reads_many(large, parse_query({}))
    assert not reads_many(large, later)
