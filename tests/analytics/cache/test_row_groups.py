"""The journal's rows, kept joined: few tables, of which most stay when a batch is added."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cache import row_groups as decoded_module
from analytics.cache.row_groups import in_runs, journal_runs
from tests.analytics.samples import SampleLake, batch_of, sample_row

MIDNIGHT = datetime(2026, 3, 4, tzinfo=UTC)
BATCHES = st.lists(st.integers(1, 20), max_size=70).map(
    lambda sizes: [SimpleNamespace(number=n, rows=rows) for n, rows in enumerate(sizes)]
)


@given(batches=BATCHES, rows_max=st.integers(1, 200))
def test_runs_are_all_batches_in_their_order(batches, rows_max):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded_module, "RUN_ROWS_MAX", rows_max)
        runs = list(in_runs(batches))

    assert [batch for run in runs for batch in run] == batches
    assert all(len(run) == 1 or sum(one.rows for one in run) <= rows_max for run in runs)


def test_runs_are_few_and_most_stay_when_a_batch_is_added():
    """A page after a commit then joins only the last runs again, not the whole journal."""
    batches = [SimpleNamespace(rows=1) for _ in range(1_000)]
    made = set()
    for count in range(1, 1_001):
        runs = [tuple(map(id, run)) for run in in_runs(batches[:count])]
        assert len(runs) <= 3 + 4 * 3
        made |= set(runs)

    assert sum(map(len, made)) <= 5 * 1_000  # each batch once in a run of each length


def test_a_run_is_newest_first(lake: SampleLake):
    hours = [5, 7, 7, 1]
    batches = [
        batch_of([sample_row(MIDNIGHT + timedelta(hours=hour))], seq)
        for seq, hour in enumerate(hours, start=1)
    ]

    (run,) = journal_runs(batches)

    rows = lake.reader.resources.row_groups.run_rows(run)
    assert rows["seq"].to_pylist() == [3, 2, 1, 4]
    assert run.min_created_at == MIDNIGHT + timedelta(hours=1)
    assert run.max_created_at == MIDNIGHT + timedelta(hours=7)


def test_the_rows_of_several_days_are_one_table(lake: SampleLake):
    rows = [sample_row(MIDNIGHT + timedelta(hours=hours)) for hours in (-1, 1, -2, 2)]
    batches = [batch_of([row], seq) for seq, row in enumerate(rows, start=1)]

    decoded = lake.reader.resources.row_groups
    assert sorted(decoded.journal(batches)["seq"].to_pylist()) == [1, 2, 3, 4]
    assert decoded.journal([]).num_rows == 0
