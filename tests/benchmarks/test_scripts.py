"""Each benchmark runs from its beginning to its end, on 20,000 rows and on no idle machine."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import benchmarks
from benchmarks.report import DOCS
from tests.budgets import only_full

FOLDER = Path(benchmarks.__file__).parent

SCRIPTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)
ENDS_WITHIN_S = 1_800
"""Some take minutes on a busy machine."""

FEW = ("--rows", "20000")
RUNS: dict[str, list[tuple[str, ...]]] = {
    "bench_alerts": [(*FEW, "--rounds", "1", "--orgs", "3")],
    "bench_audit_page": [FEW],
    "bench_bindings": [()],
    "bench_checksums": [FEW],
    "bench_client": [("--rough",)],
    "bench_evidence": [(*FEW, "--rounds", "1", "--seconds", "0.3")],
    "bench_export": [FEW],
    "bench_fairness": [(*FEW, "--rounds", "1", "--seconds", "0.2")],
    "bench_fleet": [("--quick", "--rough")],
    "bench_import": [FEW],
    "bench_ingest": [(*FEW, "--rounds", "1", "--seconds", "0.3")],
    "bench_load": [
        (*FEW, "--rounds", "1", "--seconds", "1", "--warm-up", "1"),
        (*FEW, "--minutes", "0.05", "--warm-up", "1"),
    ],
    "bench_loop": [("--rough", "--rounds", "1")],
    "bench_proxy": [("--rough",)],
    "bench_requests": [(*FEW, "--rounds", "1", "--seconds", "0.2")],
    "bench_retro": [(*FEW, "--imported", "25000")],
    "bench_segments": [FEW],
    "bench_streams": [(*FEW, "--rounds", "1", "--seconds", "1")],
    "bench_sustained_ingest": [("--minutes", "0.05")],
    "bench_verifier": [()],
    "compare": [("--size", "20k", "--ingest-s", "0.3")],
}
"""How each script is made small. `compare` runs `measure` and `peer_app`, `bench_ingest` too;
`report` has its test; `bench_load` and `bench_requests` run `set_up`."""

PEERS = {"compare": ("chdb", "ClickHouse was not run"), "bench_verifier": ("jwt", "PyJWT is not")}
"""What a script says of a peer whose package is not installed."""


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Where rows and figures are kept instead: the figures of a busy machine are not recorded.

    Not below pytest's own folder, which is closed to the account that PostgreSQL runs as for root.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "results").mkdir()
        places = {"BENCHMARKS_DIR": name, "BENCHMARKS_RESULTS": str(folder / "results")}
        yield os.environ | places


def run(script: str, *options: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{script}", *options],
        cwd=FOLDER.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_every_script_is_run_below() -> None:
    assert {*RUNS, "measure", "peer_app", "report", "set_up"} == set(SCRIPTS)


@only_full
@pytest.mark.slow
@pytest.mark.timeout(ENDS_WITHIN_S)
@pytest.mark.parametrize(
    ("script", "options"),
    [
        pytest.param(script, options, id=" ".join((script, *options)))
        for script, runs in RUNS.items()
        for options in runs
    ],
)
def test_a_script_runs_to_its_end(
    script: str, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    """A peer that is not installed is left out."""
    printed = run(script, *options, environment=environment)

    assert printed
    package, text = PEERS.get(script, ("sys", ""))
    assert importlib.util.find_spec(package) is not None or text in printed


@only_full
@pytest.mark.slow
def test_the_report_is_made_of_the_recorded_figures(tmp_path: Path) -> None:
    run("report", "--folder", str(tmp_path), environment=dict(os.environ))

    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "benchmarks.md" in written
    assert written == {name: (DOCS / name).read_text() for name in written}
