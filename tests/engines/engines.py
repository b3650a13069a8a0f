"""The engines that tests ask, each in a virtual environment of its own (see install.sh)."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.audit.open_table.conftest import Answers

SCRIPTS = Path(__file__).parent
FOLDER = Path(os.environ.get("ENGINES") or SCRIPTS.parents[1] / ".engines")
DEADLINE_S = 300.0

SPARK_JARS = (
    "iceberg-spark-runtime-3.5_2.12-*.jar",
    # For a bucket: Hadoop's client for S3, and what it needs of Amazon's SDK.
    "hadoop-aws-*.jar",
    "aws-java-sdk-*.jar",
    "joda-time-*.jar",
    "ion-java-*.jar",
    "jackson-dataformat-cbor-*.jar",
)


@dataclass(frozen=True)
class Engine:
    """One of them, and the formats that it reads here."""

    name: str
    formats: tuple[str, ...] = ("iceberg", "delta")

    def require(self) -> None:
        """Skip the test if the engine is not installed."""
        if not (FOLDER / self.name / "installed").exists():
            pytest.skip(f"run `sh tests/engines/install.sh {FOLDER} {self.name}`")

    def run(
        self, script: Path, *arguments: str, cwd: Path, environment: dict[str, str] | None = None
    ) -> str:
        """What the engine's Python prints for `script`; fails if it ends with an error.

        `environment` is added to that of this process.
        """
        python = FOLDER / self.name / "bin" / "python"
        ran = subprocess.run(
            [python, script, *arguments],
            cwd=cwd,
            env=self._environment() | (environment or {}),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout

    def answers(
        self, format_: str, location: str, cwd: Path, environment: dict[str, str] | None = None
    ) -> Answers:
        script = SCRIPTS / f"ask_{self.name}.py"
        printed = self.run(script, format_, location, cwd=cwd, environment=environment)
        return Answers(**json.loads(printed.strip().splitlines()[-1]))

    def _environment(self) -> dict[str, str]:
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
        if self.name == "spark":
            jars = ",".join(map(str, self._jars()))
            environment["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
        return environment

    def _jars(self) -> list[Path]:
        packages = FOLDER / self.name / "lib"
        return [path for name in SPARK_JARS for path in packages.rglob(name)]


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

READS = [(engine.name, format_) for engine in ENGINES.values() for format_ in engine.formats]
"""Each engine with each format that it reads."""
