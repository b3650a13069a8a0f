"""Rows of selective queries are read once, and never shown when they are no longer there."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from analytics.cache import results as results_module
from analytics.cache.results import ResultCache
from analytics.model.cursors import Position
from analytics.model.filters import parse_query
from analytics.statistics.value_index import ValueIndex
from analytics.storage.compaction import merge_segments
from analytics.storage.snapshot import Snapshot
from tests.analytics.samples import SampleLake, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
RARE = {"package": ["rare"]}


def rare_rows(lake: SampleLake, days: int) -> None:
    """Two segments a day; every one of them holds a rare row among others."""
    for day in range(days):
        for hour in range(2):
            at = MIDNIGHT - timedelta(days=day, hours=-hour)
            rows = [sample_row(at), sample_row(at, package_name="rare"), sample_row(at)]
            lake.add(rows, is_sealed=True)


def seqs(lake: SampleLake, snapshot: Snapshot, **more: list[str]) -> list[int]:
    found = lake.reader.page(snapshot, parse_query(RARE | more), 100)
    return found["seq"].to_pylist()


def test_the_second_search_for_rare_rows_opens_no_file(lake, asked):
    rare_rows(lake, 6)
    expected = seqs(lake, lake.snapshot())
    assert len(expected) == 12
    asked.clear()
    for segment in lake.segments:
        segment.path(lake.root).unlink()

    assert seqs(lake, lake.snapshot()) == expected
    assert seqs(lake, lake.snapshot(), order=["asc"]) == expected[::-1]
    window = seqs(lake, lake.snapshot(), since=["2026-03-04"], order=["asc"])
    assert window == expected[1::-1]
    query = parse_query(RARE)
    assert lake.reader.accepted_after(lake.snapshot(), query, 2, 1)["seq"].to_pylist() == [5]
    assert asked == []


def test_indexes_that_lack_a_value_are_asked_for_it_once(lake, monkeypatch):
    """A log may have thousands of small segments, and each lookup takes its time."""
    rare_rows(lake, 2)
    for day in range(4):
        lake.add([sample_row(MIDNIGHT - timedelta(days=day))] * 3, is_sealed=True)
    asked: list[str] = []
    count = ValueIndex.count

    def counted(index, segment, condition):
        asked.append(segment.segment_id)
        return count(index, segment, condition)

    monkeypatch.setattr(ValueIndex, "count", counted)
    for package, rows in (("rare", 4), ("missing", 0)):
        query = parse_query({"package": [package]})
        assert lake.reader.page(lake.snapshot(), query, 100).num_rows == rows
        assert sorted(asked) == sorted(one.segment_id for one in lake.segments)
        asked.clear()
        assert lake.reader.page(lake.snapshot(), query, 100).num_rows == rows
        assert asked == []

    lake.add([sample_row(MIDNIGHT, package_name="missing")], is_sealed=True)
    assert lake.reader.page(lake.snapshot(), query, 100).num_rows == 1
    assert asked == [lake.segments[-1].segment_id]


def test_a_stream_keeps_what_indexes_lack_once(lake, monkeypatch):
    for day in range(6):
        lake.add([sample_row(MIDNIGHT - timedelta(days=day))], is_sealed=True)
    add, added = ResultCache.add, []

    def counted(cache, tenant_id, conditions, segment_ids, rows=None):
        added.append(sorted(segment_ids))
        add(cache, tenant_id, conditions, added[-1], rows)

    monkeypatch.setattr(ResultCache, "add", counted)

    assert list(lake.reader.stream(lake.snapshot(), parse_query(RARE))) == []
    assert added == [sorted(segment.segment_id for segment in lake.segments)]


def test_rows_of_files_that_were_merged_are_shown_once(lake):
    rare_rows(lake, 6)
    expected = seqs(lake, lake.snapshot())
    lake.segments[:2] = [merge_segments(lake.root, lake.segments[:2], "seg_merged")]

    assert seqs(lake, lake.snapshot()) == expected


def test_rows_of_a_pruned_day_are_gone_and_those_past_the_watermark_unseen(lake):
    rare_rows(lake, 6)
    assert len(seqs(lake, lake.snapshot())) == 12

    pruned = replace(lake.snapshot(), segments=tuple(lake.segments[4:]))
    earlier = replace(lake.snapshot(), watermark=10)
    assert sorted(seqs(lake, pruned)) == [14, 17, 20, 23, 26, 29, 32, 35]
    assert sorted(seqs(lake, earlier)) == [2, 5, 8]


def test_later_pages_show_no_row_accepted_after_the_first(lake):
    rare_rows(lake, 6)
    everything = seqs(lake, lake.snapshot())
    behind = Position(10, MIDNIGHT + timedelta(days=1), 1)
    rest = lake.reader.page(lake.snapshot(), parse_query(RARE), 100, behind)

    assert len(everything) == 12
    assert sorted(rest["seq"].to_pylist()) == [2, 5, 8]


@pytest.mark.parametrize("bytes_max", [0, 10_000])
def test_rows_that_take_too_much_are_found_again(lake, monkeypatch, bytes_max):
    monkeypatch.setattr(results_module, "RESULT_BYTES_MAX", bytes_max)
    rare_rows(lake, 6)
    for _ in range(2):
        assert len(seqs(lake, lake.snapshot())) == 12
        assert len(seqs(lake, lake.snapshot(), until=["2026-03-02"])) == 8


def test_each_tenant_sees_its_own(lake):
    rare_rows(lake, 2)
    mine = seqs(lake, lake.snapshot())
    of_other_tenant = Snapshot("org_other", lake.last_seq, (), ())

    assert len(mine) == 4
    assert seqs(lake, of_other_tenant) == []


def test_conditions_count_as_much_as_rows(lake):
    """A rare value beside a long text that varies would fill the memory many times over."""
    rare_rows(lake, 1)
    cache = lake.reader.resources.results._cache
    before = cache.size
    for number in range(3):
        texts = ["rare", f"{number}" + "x" * 10_000]
        query = parse_query({"package": texts, "order": ["asc"]})
        assert len(lake.reader.page(lake.snapshot(), query, 10)) == 2

    assert cache.size - before > 3 * 10_000
