"""The benchmarks that no other test runs: each can at least be begun."""

import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from tests.budgets import only_full

FOLDER = Path(benchmarks.__file__).parent
PEERS = ("asyncpg", "chdb", "jwt", "psycopg")
"""What only `make bench` installs."""

SCRIPTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)


def test_there_are_scripts():
    """Those of `make bench`, and those that take longer."""
    assert {"compare", "load", "report", "bench_import"} <= set(SCRIPTS)


LOAD = """
import importlib, sys
for script in sys.argv[1:]:
    try:
        importlib.import_module(f"benchmarks.{script}")
    except ModuleNotFoundError as error:
        print(script, error.name)
"""


@only_full
@pytest.mark.slow
def test_every_script_finds_what_it_needs():
    """Nothing has moved away; only what `make bench` installs may not be there."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *SCRIPTS], cwd=FOLDER.parent, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    lacking = dict(line.split() for line in done.stdout.splitlines())
    assert set(lacking.values()) <= set(PEERS), lacking
