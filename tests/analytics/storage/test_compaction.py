"""Merging: the same rows in the same order, in one file instead of many."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from analytics.model.errors import StoreFault
from analytics.model.schema import AUDIT_SCHEMA
from analytics.storage import compaction, segment_reader, segment_writer
from analytics.storage.compaction import (
    MERGE_BYTES_MAX,
    MergeTooLarge,
    merge_segments,
    merged_rows,
)
from analytics.storage.segment_metadata import Segment, WrongOrder
from analytics.storage.segment_reader import open_segment
from analytics.storage.segment_writer import write_segment, write_sorted
from tests.analytics.samples import DAY, NOON, TENANT, sample_row, sealed, table_of
from tests.budgets import only_full

OFFSETS_S = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=7), min_size=1, max_size=5)


def rows_of(root, segment) -> list[dict]:
    with open_segment(root, segment) as file:
        return [row for group in file.row_groups() for row in file.rows(group.index).to_pylist()]


@given(
    offsets=OFFSETS_S,
    group_rows=st.integers(1, 4),
    batch_rows=st.integers(1, 4),
    held_bytes=st.sampled_from([0, 5_000, 10_000, 2**30]),
)
def test_what_was_in_many_files_is_in_one(
    tmp_path_factory, offsets, group_rows, batch_rows, held_bytes
):
    root = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "ROW_GROUP_ROWS", group_rows)
        patch.setattr(segment_reader, "BATCH_ROWS_MIN", batch_rows)
        patch.setattr(compaction, "HELD_BYTES_MAX", held_bytes)
        parts = []
        for seconds in offsets:
            first = 1 + sum(part.rows for part in parts)
            rows = [sample_row(NOON + timedelta(seconds=s), version=str(s)) for s in seconds]
            parts.append(sealed(root, f"seg_{first}", rows, first))
        expected = [row for part in parts for row in rows_of(root, part)]
        expected.sort(key=lambda row: (row["created_at"], row["seq"]), reverse=True)

        try:
            merged = merge_segments(root, parts, "seg_all")
        except MergeTooLarge:
            assert len(parts) > 2
            reject()

        assert rows_of(root, merged) == expected
        assert merged.rows == len(expected)
        assert (merged.min_seq, merged.max_seq) == (1, len(expected))
        assert merged.decision_counts == {"BLOCKED": len(expected)}
        assert merged.min_created_at == expected[-1]["created_at"]
        assert merged.max_created_at == expected[0]["created_at"]


def test_the_catalog_line_is_that_of_the_file(tmp_path):
    """`audit check` compares size and digest with the bytes on the disk."""
    parts = [sealed(tmp_path, f"seg_{n}", [sample_row()] * 3, 3 * n) for n in range(1, 4)]

    merged = merge_segments(tmp_path, parts, "seg_all")

    content = merged.path(tmp_path).read_bytes()
    assert merged.size == len(content)
    assert merged.sha256 == hashlib.sha256(content).hexdigest()
    assert pq.read_metadata(merged.path(tmp_path)).num_row_groups == 1
    assert all(part.path(tmp_path).exists() for part in parts)


def test_rows_that_count_from_0_get_their_place(tmp_path):
    journalled = sealed(tmp_path, "seg_1", [sample_row()] * 2, 1)
    rows = table_of([sample_row()] * 3, 0)
    imported = write_segment(tmp_path, TENANT, DAY, "seg_2", rows).with_seq_base(3)

    merged = merge_segments(tmp_path, [journalled, imported], "seg_all")

    assert (imported.min_seq, imported.max_seq) == (3, 5)
    assert [row["seq"] for row in rows_of(tmp_path, imported)] == [5, 4, 3]
    assert [row["seq"] for row in rows_of(tmp_path, merged)] == [5, 4, 3, 2, 1]
    assert merged.seq_base == 0


def room_for(root: Path, part: Segment) -> int:
    """What a merge that reads `part` alone takes."""
    with open_segment(root, part) as file:
        return file.reader_bytes() + 2 * file.rows(0).nbytes


def test_files_that_are_read_in_turn_take_no_more_memory_than_one(tmp_path, monkeypatch):
    """A day is mostly sealed in its order."""
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 2)
    parts = [
        sealed(tmp_path, f"seg_{n}", [sample_row(NOON + timedelta(seconds=n))] * 6, 6 * n)
        for n in range(1, 5)
    ]
    monkeypatch.setattr(compaction, "HELD_BYTES_MAX", room_for(tmp_path, parts[0]))

    tables = list(merged_rows(tmp_path, parts))

    assert sum(table.num_rows for table in tables) == 24
    assert max(table.num_rows for table in tables) <= 6


def test_rows_of_one_instant_are_held_no_longer_than_others(tmp_path, monkeypatch):
    """An import of dates, or a client that sends one instant only, must not fill the memory."""
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 2)
    parts = [sealed(tmp_path, f"seg_{n}", [sample_row(NOON)] * 20, 20 * n) for n in range(5)]
    imported = write_segment(tmp_path, TENANT, DAY, "seg_i", table_of([sample_row(NOON)] * 20, 0))
    monkeypatch.setattr(compaction, "HELD_BYTES_MAX", room_for(tmp_path, imported))

    tables = list(merged_rows(tmp_path, [imported.with_seq_base(100), *parts]))

    assert max(table.num_rows for table in tables) <= 6
    assert [seq for table in tables for seq in table["seq"].to_pylist()] == [*range(119, -1, -1)]


LONG = json.dumps({"rule_id": "r" * 2_000, "source": "osv"})


@contextmanager
def counted_memory() -> Iterator[Callable[[], int]]:
    """Ask for the most that pyarrow has held at a time, of what it took within the block."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    try:
        yield counting.max_memory
    finally:
        pa.set_memory_pool(before)
        _kept_alive.append(counting)  # buffers that are freed later still tell their pool


_kept_alive: list[pa.MemoryPool] = []


def overlapping(root: Path, count: int, rows: int, payload: str) -> list[Segment]:
    """Segments of the same instants: each row of one lies between rows of all the others."""
    instants = (NOON - timedelta(seconds=n) for n in range(rows))
    table = table_of([sample_row(at, payload=payload) for at in instants], 0)
    parts = []
    for number in range(count):
        seq = pc.add(table["seq"], number * rows)
        placed = table.set_column(0, AUDIT_SCHEMA.field("seq"), seq)
        parts.append(write_segment(root, TENANT, DAY, f"seg_{number}", placed))
    return parts


@only_full
def test_memory_is_bounded_however_many_files_overlap(tmp_path):
    """File sizes say little of it: a repeated text is in a file once."""
    parts = overlapping(tmp_path, 64, 2_500, LONG)
    assert sum(part.size for part in parts) < MERGE_BYTES_MAX / 16

    with counted_memory() as most:
        merged = merge_segments(tmp_path, parts, "seg_all")
        held = most()

    assert merged.rows * len(LONG) > MERGE_BYTES_MAX
    assert held < MERGE_BYTES_MAX


def test_files_whose_rows_would_take_too_much_are_refused_but_for_two(tmp_path, monkeypatch):
    """Two must be merged, or a day would never be."""
    parts = overlapping(tmp_path, 3, 300, LONG)
    monkeypatch.setattr(compaction, "HELD_BYTES_MAX", 256 * len(LONG) * 2)

    with pytest.raises(MergeTooLarge):
        merge_segments(tmp_path, parts, "seg_all")

    assert {path.stem for path in tmp_path.rglob("*.p*")} == {part.segment_id for part in parts}
    assert merge_segments(tmp_path, parts[:2], "seg_two").rows == 600


def test_what_readers_hold_counts_too(tmp_path, monkeypatch):
    """A page of each column, and its dictionary, may take more than the rows."""
    rows = [
        sample_row(NOON - timedelta(seconds=n), payload=json.dumps({"rule_id": f"{n}" * 300}))
        for n in range(300)
    ]
    parts = [sealed(tmp_path, f"seg_{n}", rows, 300 * n) for n in range(3)]
    with open_segment(tmp_path, parts[0]) as file:
        monkeypatch.setattr(compaction, "HELD_BYTES_MAX", 3 * file.rows(0).nbytes)

    with pytest.raises(MergeTooLarge):
        merge_segments(tmp_path, parts, "seg_all")


def test_days_are_not_mixed(tmp_path):
    parts = [
        sealed(tmp_path, "seg_1", [sample_row()]),
        sealed(tmp_path, "seg_2", [sample_row(NOON + timedelta(days=1))]),
    ]

    with pytest.raises(ValueError, match="one tenant and day"):
        merge_segments(tmp_path, parts, "seg_all")


def test_a_file_that_is_gone_is_a_fault_and_leaves_nothing(tmp_path):
    """A merge of a part of the rows would lose the others."""
    parts = [sealed(tmp_path, f"seg_{n}", [sample_row()], n) for n in range(1, 3)]
    parts[0].path(tmp_path).unlink()

    with pytest.raises(StoreFault):
        merge_segments(tmp_path, parts, "seg_all")

    assert [path.stem for path in tmp_path.rglob("*.p*") if path.is_file()] == ["seg_2"]


def test_tables_that_are_out_of_order_are_refused(tmp_path):
    """Pages, merging and the short path rely on every file being newest first."""
    older, newer = table_of([sample_row()], 1), table_of([sample_row()], 2)

    with pytest.raises(WrongOrder):
        write_sorted(tmp_path, TENANT, DAY, "seg_1", [older, newer], rows_expected=2)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
