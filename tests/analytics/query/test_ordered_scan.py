"""Days read as their files have them say what an engine says of them, in the same tables."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding, export_pieces
from analytics.model.filters import parse_query
from analytics.model.schema import AUDIT_SCHEMA
from analytics.query.engine import STREAM_BATCH_ROWS, Cancellation, QueryStopped
from analytics.query.ordered_scan import OrderedScan, are_disjoint
from analytics.query.reader import Reader
from analytics.query.scans import DuckDBScan, Resources
from analytics.storage import segment_writer
from analytics.storage.segment_metadata import Segment
from analytics.storage.snapshot import Snapshot
from tests.analytics.samples import NOON, SampleLake, sample_row
from tests.budgets import sample

ORDERS = pytest.mark.parametrize("order", ["desc", "asc"])
QUERIES = pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"since": ["2026-03-04T12:00:20Z"], "until": ["2026-03-04T12:04:00Z"]},
        {"package": ["p1", "p2"], "actor": ["!a3"]},
        {"subject": ["!s*"]},
        {"package": ["nowhere"]},
    ],
)


@pytest.fixture
def days(lake: SampleLake, monkeypatch: pytest.MonkeyPatch) -> SampleLake:
    """Three files of one day, one after the other, in small row groups; the last counts from 0."""
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS", 64)
    for first in (0, 200, 400):
        lake.add(
            [
                sample_row(
                    NOON + timedelta(seconds=(first + n) // 2),
                    package_name=f"p{n % 5}",
                    actor=f"a{n % 7}",
                    subject=f"s{n % 3}" if n % 4 else None,
                )
                for n in range(200)
            ],
            is_sealed=True,
        )
    return lake


def engine_rows(reader: Reader, snapshot: Snapshot, parameters: dict[str, list[str]]) -> list:
    query = parse_query(parameters)
    tables = DuckDBScan(snapshot, query, None).stream(reader.resources)
    return [row for table in tables for row in table.to_pylist()]


@sample(10)
@ORDERS
@QUERIES
@pytest.mark.parametrize("held_back", [0, 1, 250])
def test_every_row_is_the_engines(days, parameters, order, held_back):
    parameters = parameters | {"order": [order]}
    snapshot = replace(days.snapshot(), watermark=600 - held_back)
    query = parse_query(parameters)
    tables = OrderedScan(snapshot, query).stream(days.reader.resources)

    found = [row for table in tables for row in table.cast(AUDIT_SCHEMA).to_pylist()]
    assert found == engine_rows(days.reader, snapshot, parameters)


@sample(2)
@pytest.mark.parametrize("export_format", ExportFormat)
def test_a_file_does_not_tell_how_its_rows_were_read(days, monkeypatch, export_format):
    """Two exports of the same rows have the same digest, also when files were merged meanwhile."""

    def exported() -> bytes:
        tables = days.reader.stream(days.snapshot(), parse_query({}))
        pieces = export_pieces(tables, "org_acme", FileEncoding(export_format))
        return b"".join(piece.content for piece in pieces)

    directly = exported()
    monkeypatch.setattr("analytics.query.planner.are_disjoint", lambda segments: False)
    assert directly == exported()


def test_tables_are_as_large_as_the_engines(lake):
    """Row groups of another size would make another Parquet file."""
    count = 2 * STREAM_BATCH_ROWS + 3
    lake.add([sample_row(NOON + timedelta(microseconds=n)) for n in range(count)], is_sealed=True)
    tables = lake.reader.stream(lake.snapshot(), parse_query({}))

    assert [rows.num_rows for rows in tables] == [STREAM_BATCH_ROWS, STREAM_BATCH_ROWS, 3]


def test_files_that_share_an_instant_do_not_lie_apart(days):
    """Among rows of one instant `seq` decides, so rows of both files may alternate."""
    first, second, third = days.segments

    def moved(segment: Segment, by_s: float) -> Segment:
        by = timedelta(seconds=by_s)
        return replace(
            segment,
            min_created_at=segment.min_created_at + by,
            max_created_at=segment.max_created_at + by,
        )

    assert are_disjoint([])
    assert are_disjoint([third, first, second])
    assert not are_disjoint([first, moved(second, -1), third])
    assert not are_disjoint([first, moved(second, -50), third])


@ORDERS
def test_rows_of_files_that_share_an_instant_take_turns(lake, order):
    for _ in range(3):
        lake.add([sample_row(NOON), sample_row(NOON + timedelta(seconds=1))], is_sealed=True)
    tables = lake.reader.stream(lake.snapshot(), parse_query({"order": [order]}))

    expected = [1, 3, 5, 2, 4, 6][:: 1 if order == "asc" else -1]
    assert [seq for rows in tables for seq in rows["seq"].to_pylist()] == expected


def test_it_ends_when_it_is_stopped(days):
    list(days.reader.stream(days.snapshot(), parse_query({})))
    stop = Cancellation()
    tables = days.reader.cancelled_by(stop).stream(days.snapshot(), parse_query({}))
    stop.set()

    with pytest.raises(QueryStopped):
        next(tables)


def test_a_query_that_finds_most_rows_is_read_in_order_and_one_that_finds_few_is_not(
    lake, monkeypatch
):
    """DuckDB skips rows that need not be read, and sorts what it returns."""
    for day in range(3):
        rows = [sample_row(NOON + timedelta(days=day, seconds=n)) for n in range(9)]
        rows.append(sample_row(NOON + timedelta(days=day), package_name="rare"))
        lake.add(rows, is_sealed=True)
    sorted_days = []
    stream = DuckDBScan.stream

    def counted(self: DuckDBScan, resources: Resources) -> object:
        sorted_days.append(self.part)
        return stream(self, resources)

    monkeypatch.setattr(DuckDBScan, "stream", counted)
    for parameters, days in (
        ({}, 0),
        ({"package": ["!rare"]}, 0),
        ({"package": ["rare"]}, 3),
        ({"source_ip": ["192.0.2.7"]}, 3),  # of which no index tells how many rows there are
    ):
        sorted_days.clear()
        list(lake.reader.stream(lake.snapshot(), parse_query(parameters)))
        assert len(sorted_days) == days
