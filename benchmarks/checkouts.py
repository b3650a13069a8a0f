"""The service of two checkouts: the current one, and that of `--beside`, with its own .venv."""

import hashlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.lake import SETS, VERSION
from benchmarks.server import ServerClient, running_server

OURS: Final = "Countersign"
BEFORE: Final = "before"
_HERE: Final = Path(__file__).parents[1]
_SET_UP: Final = (Path(__file__).parent / "set_up.py").read_text()


@dataclass(frozen=True)
class Running:
    """A server, its data dir, and the seconds from its start until it was ready."""

    client: ServerClient
    data_dir: Path
    ready_s: float


@dataclass(frozen=True)
class Checkout:
    """A version of the service; `column` is its name in the tables."""

    column: str
    path: Path

    @property
    def _python(self) -> str:
        return str(self.path / ".venv" / "bin" / "python")

    def _folder(self, rows: int) -> Path:
        """Where its sets are kept: files written by other code are not taken for its own."""
        code = hashlib.sha256()
        for path in sorted((self.path / "analytics").rglob("*.py")):
            code.update(path.read_bytes())
        return SETS / f"beside-{code.hexdigest()[:12]}-{rows}-v{VERSION}"

    @contextmanager
    def filled(self, rows: int, pieces: int = 0) -> Iterator[Path]:
        """A data dir, for the block, with the largest tenant's part of `rows` generated rows.

        Its own code writes them. With `pieces` each day is in so many files.
        """
        folder = self._folder(rows)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as data_dir:
            set_up = [self._python, "-c", _SET_UP, str(folder), str(rows), str(pieces), data_dir]
            subprocess.run(set_up, cwd=self.path, check=True)
            yield Path(data_dir)

    @contextmanager
    def serving(self, data_dir: Path, settings: dict[str, str] | None = None) -> Iterator[Running]:
        """Its server over `data_dir`, in the block."""
        # Issuers are unreachable here, which does not matter.
        quiet = {"COUNTERSIGN_LOG_LEVEL": "error"} | (settings or {})
        began_at = time.perf_counter()
        with running_server(data_dir, quiet, python=self._python, folder=self.path) as client:
            yield Running(client, data_dir, time.perf_counter() - began_at)


def checkouts(beside: Path | None) -> list[Checkout]:
    """The other version if there is one, and this one."""
    before = [Checkout(BEFORE, beside.resolve())] if beside else []
    return [*before, Checkout(OURS, _HERE)]


def medians(by_column: Mapping[str, Iterable[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Of the rounds of each column, the median of each figure: by figure, then by column."""
    table: dict[str, dict[str, float]] = {}
    for column, rounds in by_column.items():
        values: dict[str, list[float]] = {}
        for figures in rounds:
            for name, value in figures.items():
                values.setdefault(name, []).append(value)
        for name, all_values in values.items():
            table.setdefault(name, {})[column] = statistics.median(all_values)
    return table


def show(table: Mapping[str, Mapping[str, float]], goals: Mapping[str, float]) -> None:
    """Print the figures of `medians`, a line each."""
    for name, by_column in table.items():
        values = "   ".join(f"{column} {value:10,.2f}" for column, value in by_column.items())
        goal = f"   goal {goals[name]:,.2f}" if name in goals else ""
        print(f"{name:<64} {values}{goal}", flush=True)
