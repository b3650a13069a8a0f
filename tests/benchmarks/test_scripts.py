"""The benchmarks that no other test runs: each can at least be begun."""

import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks

FOLDER = Path(benchmarks.__file__).parent
PEERS = ("asyncpg", "chdb", "jwt", "psycopg")
"""What only `make bench` installs."""

SCRIPTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)


def test_there_are_scripts():
    """Those of `make bench`, and those that take longer."""
    assert {"compare", "load", "report", "bench_import"} <= set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_claims(script):
    """Nothing that it needs has moved away."""
    done = subprocess.run(
        [sys.executable, "-c", f"import benchmarks.{script}"],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
    )
    lacking = [name for name in PEERS if f"No module named '{name}'" in done.stderr]
    if lacking:
        pytest.skip(f"{lacking[0]} is not installed")
    assert done.returncode == 0, done.stderr
