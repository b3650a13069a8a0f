"""The engines that tests ask, each in a virtual environment of its own (see install.sh)."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.lake_table.conftest import Answers

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("ENGINES") or HERE.parents[1] / ".engines")
DEADLINE_S = 300.0


@dataclass(frozen=True)
class Engine:
    """One of them, and the formats that it reads here."""

    name: str
    formats: tuple[str, ...] = ("iceberg", "delta")

    def require(self) -> None:
        """Skip the test if the engine is not installed."""
        if not (FOLDER / self.name / "installed").exists():
            pytest.skip(f"run `sh tests/engines/install.sh {FOLDER} {self.name}`")

    def run(self, script: Path, *arguments: str, cwd: Path) -> str:
        """What the engine's Python prints for `script`; fails if it ends with an error."""
        python = FOLDER / self.name / "bin" / "python"
        environment = os.environ | {
            "PYTHONWARNINGS": "ignore",
            "RAY_DEDUP_LOGS": "0",
            "DO_NOT_TRACK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "DAFT_ANALYTICS_ENABLED": "0",
        }
        environment.pop("PYTHONPATH", None)
        home = FOLDER / self.name / "home"
        if home.is_dir():
            environment["HOME"] = str(home)
        ran = subprocess.run(
            [python, script, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout

    def answers(self, format_: str, folder: str, cwd: Path) -> Answers:
        """What it says of the table in `folder`."""
        printed = self.run(HERE / f"ask_{self.name}.py", format_, folder, cwd=cwd)
        return Answers(**json.loads(printed.strip().splitlines()[-1]))


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("duckdb"),
        Engine("chdb"),
        Engine("sail"),
        Engine("daft"),
        # There is no package with the Delta jars for Spark.
        Engine("spark", ("iceberg",)),
    )
}
