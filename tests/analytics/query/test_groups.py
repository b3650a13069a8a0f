"""Groups of equal values equal those that plain Python makes of the rows."""

from collections import defaultdict
from datetime import timedelta

import pytest

from analytics.model.filters import parse_query
from analytics.query.aggregates import Group, groups_of
from tests.analytics.forced import forced
from tests.analytics.models import matching
from tests.analytics.samples import NOON, sample_row


@pytest.fixture
def accepted(lake):
    """Rows of two packages with several versions, one of them null, in files and the journal."""
    rows = [
        sample_row(
            NOON + timedelta(minutes=n),
            package_name=f"p{n % 2}",
            version=None if n % 5 == 0 else f"1.{n % 3}",
            decision="BLOCKED" if n % 4 == 0 else None if n % 7 == 0 else "ALLOWED",
        )
        for n in range(60)
    ]
    return lake.add(rows[:40], is_sealed=True) | lake.add(rows[40:], is_sealed=False)


@pytest.mark.parametrize("kind", ["cached", "duckdb"])
@pytest.mark.parametrize("parameters", [{}, {"package": ["p1"]}, {"package": ["none"]}])
def test_groups_are_counted_as_in_a_list(lake, accepted, kind, parameters):
    query = parse_query(parameters)
    expected = defaultdict(list)
    for row in matching(accepted, query, 10**6).values():
        expected[row.package_name, row.version].append(row)
    lines = [
        Group(
            values,
            len(rows),
            sum(row.decision == "BLOCKED" for row in rows),
            min(row.created_at for row in rows),
            max(row.created_at for row in rows),
        )
        for values, rows in expected.items()
    ]
    lines.sort(key=lambda group: (-group.rows, group.values[0], group.values[1] or "~"))
    reader = forced(lake.reader, kind)
    found = reader.groups(lake.snapshot(), query, ["package_name", "version"], 4)
    assert groups_of(found) == lines[:4]


@pytest.mark.parametrize("kind", ["cached", "duckdb"])
@pytest.mark.parametrize("parameters", [{}, {"package": ["p1"]}, {"version": ["1.1"]}])
def test_several_columns_are_counted_as_each_alone(lake, accepted, kind, parameters):
    query = parse_query(parameters)
    reader, snapshot = forced(lake.reader, kind), lake.snapshot()
    columns = ["package_name", "version", "actor", "ecosystem"]

    together = reader.count_values_of(snapshot, query, columns, 3)
    assert together == {
        column: reader.count_values(snapshot, query, column, 3) for column in columns
    }
    assert reader.count_values_of(snapshot, query, ["version"], 3) == {
        "version": together["version"]
    }
