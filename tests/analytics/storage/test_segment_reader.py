"""Reading a part of a row group: all rows with some seqs, wherever in the group they are."""

import random
from datetime import timedelta

import pyarrow.compute as pc
import pytest

from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage.segment_reader import PART_ROWS, open_segment
from analytics.storage.segment_writer import write_segment
from tests.analytics.samples import DAY, NOON, TENANT, sample_row, table_by_seq

ROWS = 3 * PART_ROWS + 7


@pytest.fixture(params=["in order", "with stragglers"])
def segment(request, tmp_path):
    """Rows of one row group, newest first; an import brings rows that are late in seq."""
    rng = random.Random(7)
    seqs = list(range(1_000, 1_000 + 2 * ROWS, 2))
    if request.param == "with stragglers":
        for _ in range(20):
            a, b = rng.randrange(ROWS), rng.randrange(ROWS)
            seqs[a], seqs[b] = seqs[b], seqs[a]
    rows = {seq: sample_row(NOON + timedelta(milliseconds=n)) for n, seq in enumerate(seqs)}
    return write_segment(tmp_path, TENANT, DAY, "seg_1", table_by_seq(rows))


def test_the_part_has_all_rows_with_these_seqs(segment, tmp_path):
    last = 1_000 + 2 * ROWS
    with open_segment(tmp_path, segment) as file:
        assert file.row_group_count == 1
        whole = file.rows(0)
        for first, end in (
            (1_000, 1_001),
            (1_000, 1_600),
            (last - 600, last),
            (last // 2, last // 2 + 512),
            (2 * PART_ROWS, 2 * PART_ROWS + 1_024),
            (1_000, last),
            (0, last * 2),
        ):
            seq = whole.column("seq")
            wanted = whole.filter(pc.and_(pc.greater_equal(seq, first), pc.less(seq, end)))
            part = file.rows_around(0, first, end)
            seq = part.column("seq")
            found = part.filter(pc.and_(pc.greater_equal(seq, first), pc.less(seq, end)))
            assert found.equals(wanted)
            assert found.num_rows > 0


def test_without_rows_with_these_seqs_the_part_is_empty(segment, tmp_path):
    with open_segment(tmp_path, segment) as file:
        part = file.rows_around(0, 1_001, 1_002)

    assert part.num_rows == 0
    assert part.schema == AUDIT_SCHEMA


def test_a_few_of_the_newest_rows_are_read_without_the_others(segment, tmp_path):
    """A proof needs 256 rows of a group of many thousands."""
    with open_segment(tmp_path, segment) as file:
        newest = file.rows(0).column("seq")[0].as_py()
        assert file.rows_around(0, newest, newest + 1).num_rows == 1
