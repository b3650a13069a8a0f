"""The parts of the fleet's benchmark that compute: limits, tables, and the slower disk."""

import os
import subprocess
import sys

import pytest

from benchmarks.fleet.publication import made_up
from benchmarks.fleet.scale import FLEET, Measured, Use, files_of, limits, measured, sizes
from benchmarks.fleet.slow_sync import NoCompiler, build, environment
from benchmarks.fleet.tables import quick_note, scale_text, sizing, tables

RUN = {
    "databases": {"newest page p50, ms": {"SQLite": 2.0, "PostgreSQL": 2.6}},
    "warm": {"newest page, ms": {"folder": 2.0, "S3": 2.1}},
    "cold": {"90 days, ms": {"folder": 9.0, "S3": 90.0}},
    "processor": {"processor time of a newest page, ms": {"1 node": 2.0, "3 nodes": 2.5}},
    "ingest": {
        "1 row a request, rows/s": {"SQLite": 500.0, "PostgreSQL, 3 nodes": 2_000.0},
        "100 rows a request, rows/s": {"SQLite": 9.0, "PostgreSQL, 3 nodes": 40_000.0},
        "1 row a request, sync + 2 ms, rows/s": {"SQLite": 9.0, "PostgreSQL, 3 nodes": 1_000.0},
    },
    "publication": {
        "100 files: first publication, ms": {"Iceberg": 50.0, "Delta": 40.0},
        "10,000 files: first publication, ms": {"Iceberg": 900.0, "Delta": 1_000.0},
        "10,000 files: one more file, ms": {"Iceberg": 100.0, "Delta": 200.0},
    },
    "catalog": {"bytes a file in the catalog": 800.0},
}
ROWS = {
    "engines": {
        "countersign": {
            "load": {"bytes_a_row": 20.0},
            "exports": {"export CSV": {"rows_per_s": 1e6}},
        }
    }
}
CLAIMS = {"segments": {"figures": {"merge of 20, rows/s": 500_000.0}}}


@pytest.fixture
def figures() -> Measured:
    return measured(RUN, ROWS, CLAIMS)


def test_the_figures_of_a_run_are_found_by_their_settings(figures):
    assert (figures.one_row_per_s, figures.slow_one_row_per_s) == (2_000, 1_000)
    assert figures.publish_ms == {100: 50, 10_000: 1_000}
    assert figures.cold_ms == {90: 90}


def test_the_first_limit_is_the_one_that_is_used_most(figures):
    first, *others = limits(FLEET, figures)

    assert first.name == "commits, one row a request, slower syncs"
    assert first.share == pytest.approx(10_000_000_000 / 365 / 86_400 * 10 / 1_000)
    assert first.share > max(line.share for line in others)


def test_sizes_grow_with_tenants_and_days(figures):
    use = Use(nodes=3, tenants=10, rows=10**6, days=100, busy=1, batch_rows=1)

    assert files_of(use) == 1_000
    found = sizes(use, figures)
    assert found["catalog in the database, GB"] == pytest.approx(1_000 * 800 / 1e9)
    assert found["segments on S3, GB"] == pytest.approx(10**6 * 20 / 1e9)
    assert found["first publication of all files, s"] == pytest.approx(0.1)


def test_the_page_names_the_first_limit_and_the_installation(figures):
    installation, verdict, *_ = scale_text(figures)

    assert "10 nodes of 2 cores, 1,000 tenants, 10,000,000,000 rows" in installation
    assert "commits, one row a request, slower syncs**, which is beyond" in verdict
    assert sizing(figures).count("\n") == 4


def test_a_quick_run_is_marked():
    """Its figures must not be taken for those of a real one."""
    assert "do not use them" in quick_note({"is_quick": True})
    assert quick_note({"is_quick": False}) == ""


def test_every_part_of_a_run_is_a_table():
    made = tables({"figures": RUN})

    assert made[0].startswith("| page over HTTP | SQLite | PostgreSQL |")
    assert "Goal" in made[0]
    assert "| 10,000 files: one more file, ms | 100 | 200 |" in made[-1]


def test_made_up_files_have_a_tenant_a_day_each():
    segments = [made_up(number, 1_000) for number in range(1_000)]

    assert len({(segment.tenant_id, segment.day) for segment in segments}) == 1_000
    assert len({segment.day for segment in segments}) == 100


@pytest.mark.slow
def test_syncs_of_the_database_take_longer(tmp_path):
    """Both calls. The delay is a lower bound, whatever else the machine does."""
    try:
        library = build(tmp_path)
    except NoCompiler as missing:
        pytest.skip(str(missing))
    code = (
        "import os, sys, time\n"
        "began_at = time.monotonic()\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    os.fsync(file); os.fdatasync(file)\n"
        "print(time.monotonic() - began_at)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "slow-database"],
        env={**os.environ, **environment(library, tmp_path / "slow", 100_000)},
        capture_output=True,
        check=True,
    )

    assert float(done.stdout) >= 0.2
