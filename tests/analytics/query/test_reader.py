"""Pages, counts and streams: journal and segments together equal one plain list."""

import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from analytics.model.cursors import Position
from analytics.model.filters import Query, parse_query
from analytics.model.rows import AuditRow
from analytics.query.buckets import Bucket
from analytics.query.engine import Engine
from analytics.query.planner import day_windows
from analytics.statistics import top_values
from analytics.storage import index_builder
from analytics.storage.snapshot import Snapshot
from tests.analytics.models import check_all_answers, in_order, matching, paged
from tests.analytics.samples import NOON, TENANT, SampleLake, sample_row, sealed
from tests.budgets import budget, only_full, sample

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
ORDERS = pytest.mark.parametrize("order", ["desc", "asc"])


def mixed(lake: SampleLake, seed: int, days: int = 9, rows: int = 200) -> dict[int, AuditRow]:
    """Rows over `days` days with many ties, in runs that are sealed or journalled at random."""
    dice = random.Random(seed)
    accepted: dict[int, AuditRow] = {}
    while len(accepted) < rows:
        at = MIDNIGHT - timedelta(days=dice.randrange(days))
        run = [
            sample_row(at + timedelta(seconds=dice.randrange(4)), package_name=f"p{n % 3}")
            for n in range(dice.randrange(1, 12))
        ]
        accepted |= lake.add(run, is_sealed=dice.random() < 0.5)
    return accepted


@pytest.mark.parametrize(
    ("days", "lengths"),
    [(0, []), (1, [1]), (2, [1, 1]), (5, [1, 4]), (6, [1, 4, 1]), (30, [1, 4, 16, 9])],
)
def test_windows_widen_from_the_first_day_on(days, lengths):
    """Most queries end in the first window; a rare value is found in few steps."""
    asked = [date(2026, 1, 1) + timedelta(days=n) for n in range(days)]
    cut = list(day_windows(asked, 50, lambda day: None))

    assert [len(window) for window in cut] == lengths
    assert [day for window in cut for day in window] == asked


@sample(2)
@ORDERS
@pytest.mark.parametrize("limit", [1, 7, pytest.param(50, marks=only_full), 1000])
def test_every_answer_over_many_days_is_the_plain_lists(lake, order, limit):
    accepted = mixed(lake, seed=limit, rows=60 if limit == 1 else 200)
    query = parse_query({"order": [order], "package": ["p1", "p2"]})
    rows = matching(accepted, query, lake.last_seq)

    check_all_answers(lake.reader, lake.snapshot(), query, rows, limit, Bucket.DAY)


def test_rows_come_back_with_every_column_as_it_was_accepted(lake):
    rows = [sample_row(MIDNIGHT), sample_row(MIDNIGHT, package_name=None, subject="", payload="é")]
    lake.add(rows, is_sealed=True)
    lake.add(rows, is_sealed=False)

    read = lake.reader.page(lake.snapshot(), Query(), 10).to_pylist()

    assert [AuditRow(**{k: v for k, v in row.items() if k != "seq"}) for row in read] == [
        *rows[::-1],
        *rows[::-1],
    ]


@ORDERS
def test_rows_above_the_watermark_stay_out_of_later_pages(lake, order):
    accepted = mixed(lake, seed=5)
    query = parse_query({"order": [order]})
    first = lake.reader.page(lake.snapshot(), query, 100).to_pylist()
    after = Position(lake.last_seq, first[-1]["created_at"], first[-1]["seq"])
    mixed(lake, seed=6)

    rest = lake.reader.page(lake.snapshot(), query, 1000, after)

    seqs = in_order(accepted, query.order)
    assert [row["seq"] for row in first] + rest.column("seq").to_pylist() == seqs


def test_a_snapshot_shows_nothing_above_its_own_watermark(lake):
    """A file of an import or a merge may hold later rows already."""
    lake.add([sample_row(MIDNIGHT)] * 5, is_sealed=True)
    earlier = Snapshot(TENANT, 3, tuple(lake.segments), ())

    assert lake.reader.page(earlier, Query(), 10).column("seq").to_pylist() == [3, 2, 1]
    assert lake.reader.count(earlier, Query()) == 3
    assert lake.reader.row(earlier, 4, Query()).num_rows == 0


@pytest.mark.parametrize("is_sealed", [True, False])
def test_one_row_is_found_by_its_seq_if_the_query_matches_it(lake, is_sealed):
    """The retention floor is such a query."""
    lake.add([sample_row(MIDNIGHT)] * 3, is_sealed=is_sealed)
    row = lake.reader.row(lake.snapshot(), 2, Query(since=MIDNIGHT))

    assert row.column("seq").to_pylist() == [2]
    too_late = Query(since=MIDNIGHT + timedelta(microseconds=1))
    assert lake.reader.row(lake.snapshot(), 2, too_late).num_rows == 0
    assert lake.reader.row(lake.snapshot(), 4, Query()).num_rows == 0


@pytest.mark.parametrize(
    ("parameters", "rows"),
    [
        ({"since": ["0001-01-01"]}, 1),
        ({"since": ["0001-01-01T00:00:00Z"], "until": ["9999-12-31T23:59:59.999999Z"]}, 1),
        ({"until": ["9999-12-30"], "order": ["asc"]}, 1),
        ({"until": ["0001-01-01T00:00:00Z"]}, 0),
        ({"since": ["9999-12-31"]}, 0),
    ],
)
def test_windows_may_reach_to_the_ends_of_time(lake, parameters, rows):
    """Scripts write "forever" like that."""
    lake.add([sample_row(MIDNIGHT)], is_sealed=True)

    assert lake.reader.page(lake.snapshot(), parse_query(parameters), 10).num_rows == rows


def test_a_tenant_without_rows_has_empty_answers(lake):
    check_all_answers(lake.reader, lake.snapshot(), Query(), {}, 10, Bucket.DAY)


@pytest.mark.parametrize(
    "parameters",
    [
        {"event": ["blocklist_hit"]},
        {"decision": ["BLOCKED"]},
        {"since": ["2026-03-04T00:00:02Z"]},
    ],
)
def test_a_file_that_the_catalog_rules_out_is_not_opened(lake, parameters):
    allowed = sample_row(MIDNIGHT, event="install_allowed", decision="ALLOWED")
    lake.add([allowed], is_sealed=True)
    accepted = lake.add([sample_row(MIDNIGHT + timedelta(seconds=2))], is_sealed=True)
    lake.segments[0].path(lake.root).unlink()
    query = parse_query(parameters)

    assert paged(lake.reader, lake.snapshot(), query, 10) == list(accepted)
    assert lake.reader.count(lake.snapshot(), query) == 1
    assert sum(table.num_rows for table in lake.reader.stream(lake.snapshot(), query)) == 1


@ORDERS
def test_many_imported_files_are_one_scan(lake, order):
    """Each has a seq base of its own; a scan for each would take more memory than there is."""
    count = budget(300, 1_000)
    first = sealed(lake.root, "seg_0", [sample_row(NOON), sample_row(NOON)], first_seq=0)
    for n in range(count):
        segment = replace(first, segment_id=f"seg_{n}")
        if n:
            segment.path(lake.root).hardlink_to(first.path(lake.root))
        lake.segments.append(segment.with_seq_base(2 * n + 1))
    lake.last_seq = 2 * count
    query = parse_query({"order": [order]})

    seqs = list(range(1, 2 * count + 1))[:: -1 if order == "desc" else 1]
    assert paged(lake.reader, lake.snapshot(), query, 900) == seqs
    assert lake.reader.count(lake.snapshot(), query) == len(seqs)
    streamed = lake.reader.stream(lake.snapshot(), query)
    assert [seq for rows in streamed for seq in rows["seq"].to_pylist()] == seqs
    assert lake.reader.row(lake.snapshot(), 3, query)["seq"].to_pylist() == [3]


def test_short_columns_of_equally_frequent_values_are_counted_by_their_indexes(lake, monkeypatch):
    """Their heads bound too little, and reading all rows would take several times as long."""
    monkeypatch.setattr(index_builder, "HEAD_ROWS_MIN", 1)
    monkeypatch.setattr(top_values, "LOOKUPS_MAX", 0)
    names = [f"p{number:02}" for number in range(40)]
    for days in range(3):
        at = MIDNIGHT - timedelta(days=days)
        lake.add([sample_row(at, package_name=name) for name in names[days:]], is_sealed=True)
    asked: list[object] = []
    monkeypatch.setattr(Engine, "select", lambda *arguments, **_: asked.append(arguments))

    found = lake.reader.count_values(lake.snapshot(), parse_query({}), "package_name", 3)

    assert found == [("p02", 3), ("p03", 3), ("p04", 3)]
    assert asked == []
