"""From rows to segments: whatever the bounds and the order, the same rows."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.imports.chunks import Chunk
from analytics.imports.items import ImportItem
from analytics.imports.segment_buffer import SegmentBuffer, import_steps
from analytics.imports.validation import RowImporter
from analytics.model.instants import format_us, utc_day
from analytics.model.row_validation import AcceptedInterval, RowRefused
from analytics.model.rows import AuditRow
from analytics.storage.segment_reader import open_segment
from analytics.storage.segment_store import LocalFolder
from tests.analytics.samples import NOON, TENANT, sample_row
from tests.budgets import budget
from tests.conftest import BY_OPERATOR

ROOMY = 2**40


def names() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"seg_{next(numbers)}"


def gathered(root: Path, batches: list[list[AuditRow]], bytes_max: int) -> SegmentBuffer:
    segment_buffer = SegmentBuffer(LocalFolder(root).claim(3600.0), TENANT, names(), bytes_max)
    for batch in batches:
        segment_buffer.add(batch)
    segment_buffer.finish()
    return segment_buffer


def rows_by_place(root: Path, segment_buffer: SegmentBuffer) -> dict[int, str]:
    """The package of every row that was written, by its number; each number once."""
    found: list[tuple[int, str]] = []
    for segment in segment_buffer.segments:
        with open_segment(root, segment) as file:
            for group in file.row_groups():
                rows = file.rows(group.index)
                at = rows.column("created_at").to_pylist()
                assert {utc_day(instant) for instant in at} == {segment.day}
                found += zip(
                    *(rows.column(c).to_pylist() for c in ("seq", "package_name")), strict=True
                )
    assert len({place for place, _ in found}) == len(found)
    return dict(found)


BATCHES = st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=8)


@settings(max_examples=budget(8, 40))
@given(batches=BATCHES, bytes_max=st.sampled_from([0, 1, 500, 2_000, 5_000, ROOMY]))
def test_any_bound_and_any_split_give_the_same_rows(tmp_path_factory, batches, bytes_max):
    root = tmp_path_factory.mktemp("audit")
    count = itertools.count()
    rows = [
        [sample_row(NOON - timedelta(hours=7 * age), package_name=f"p{next(count)}") for age in one]
        for one in batches
    ]
    segment_buffer = gathered(root, rows, bytes_max)

    expected = {n: row.package_name for n, row in enumerate(itertools.chain(*rows))}
    assert rows_by_place(root, segment_buffer) == expected
    assert segment_buffer.rows == len(expected)
    assert len(list(root.rglob("*"))) >= len(segment_buffer.segments)
    if bytes_max == ROOMY:
        days = [segment.day for segment in segment_buffer.segments]
        assert len(set(days)) == len(days), "what fits in memory is one file a day"


def test_the_largest_days_go_first_and_half_of_the_room_is_made(tmp_path):
    """Small days wait for more, so that files do not become tiny."""
    row = sample_row(NOON)
    segment_buffer = SegmentBuffer(LocalFolder(tmp_path).claim(3600.0), TENANT, names(), 10_000)
    day = timedelta(days=1)
    while not segment_buffer.segments:
        segment_buffer.add([row, row, row, sample_row(NOON - day), sample_row(NOON - 2 * day)])

    assert segment_buffer.segments[0].day == NOON.date()
    assert len(segment_buffer.segments) == 1


def test_what_is_discarded_leaves_no_file(tmp_path):
    segment_buffer = gathered(
        tmp_path, [[sample_row(NOON)], [sample_row(NOON - timedelta(days=1))]], 0
    )
    assert len(list(tmp_path.rglob("*.parquet"))) == 2

    segment_buffer.discard()

    assert list(tmp_path.rglob("*.parquet")) == []
    assert (segment_buffer.rows, segment_buffer.segments) == (0, [])


GOOD = ImportItem(created_at=format_us(NOON), event="install_allowed")
BAD = RowRefused("bad")


@pytest.mark.parametrize("is_partial", [True, False])
@pytest.mark.parametrize("bytes_max", [0, ROOMY])
def test_one_refused_row_holds_up_the_others_unless_partial(tmp_path, is_partial, bytes_max):
    segment_buffer = SegmentBuffer(LocalFolder(tmp_path).claim(3600.0), TENANT, names(), bytes_max)
    row_importer = RowImporter(BY_OPERATOR, AcceptedInterval(NOON, None))
    chunks = [
        Chunk([(1, GOOD), (2, GOOD)], 20),
        Chunk([(3, GOOD), (4, BAD)], 40),
        Chunk([(5, BAD), (6, GOOD)], 60),
    ]
    steps = list(import_steps(chunks, row_importer, segment_buffer, is_partial=is_partial))

    assert [step.position for step in steps] == [20, 40, 60]
    assert [[one.line for one in step.refused] for step in steps] == [[], [4], [5]]
    assert segment_buffer.rows == (4 if is_partial else 0)
    assert bool(list(tmp_path.rglob("*.parquet"))) is is_partial
    assert sum(segment.rows for segment in segment_buffer.segments) == segment_buffer.rows
