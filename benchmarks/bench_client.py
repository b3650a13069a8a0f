"""Claim: the client installs in 10 s and 20 MB, as wrappers do that decide on the machine alone.

Each is installed in an empty environment as its page says, without a cache of the installer, and
then asked for its help for the first time, with nothing compiled. What this machine cannot get is
named and left out. `--rough` prints and stores nothing.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.results import record

ROUNDS = 5
ESTIMATED = {"install, s": 10.0, "size, MB": 20.0}
"""What the client should reach."""

Install = Callable[[Path], Path]
"""Installs a program into an empty folder; returns the program. Raises CalledProcessError."""


def with_pip(folder: Path, wanted: str, program: str) -> Path:
    """Install with pip, into a virtual environment that has nothing else."""
    target = folder / "environment"
    pip = ("-m", "pip", "--quiet", "--python", str(target / "bin" / "python"))
    options = ("--no-cache-dir", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, *pip, "install", *options, wanted)
    return target / "bin" / program


def with_npm(folder: Path, wanted: str, program: str) -> Path:
    """Install with npm, below a folder of its own."""
    options = ("--no-audit", "--no-fund", "--cache", str(folder / "cache"))
    run("npm", "install", "--global", "--prefix", str(folder / "environment"), *options, wanted)
    return folder / "environment" / "bin" / program


def run(*words: str) -> None:
    """Run a program to its end, quietly. Raises CalledProcessError if it fails."""
    subprocess.run(words, check=True, capture_output=True)


def size_mb(folder: Path) -> float:
    """What the files below `folder` take, in MB."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return sum(file.stat().st_size for file in files) / 1e6


def measured(install: Install) -> dict[str, float]:
    """Seconds to install and to the first help, and how much was installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
        empty = size_mb(folder / "environment")
        begun = time.perf_counter()
        program = install(folder)
        installed = time.perf_counter()
        run(str(program), "--help")
        helped = time.perf_counter()
        size = size_mb(folder / "environment") - empty
        return {
            "install, s": installed - begun,
            "first --help, s": helped - installed,
            "size, MB": size,
        }


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rough", action="store_true", help="one round; print, and record nothing")
    options = parser.parse_args()
    rounds = 1 if options.rough else ROUNDS
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        run(sys.executable, "requirements/client.py", name)
        (wheel,) = map(str, Path(name).glob("*.whl"))
        installs: dict[str, Install] = {
            "Countersign": lambda folder: with_pip(folder, wheel, "countersign"),
            "scfw": lambda folder: with_pip(folder, "scfw", "scfw"),
        }
        if shutil.which("npm"):
            package = "@aikidosec/safe-chain"
            installs["safe-chain"] = lambda folder: with_npm(folder, package, "safe-chain")
        for who, install in installs.items():
            try:
                each = [measured(install) for _ in range(rounds)]
            except (subprocess.CalledProcessError, OSError) as error:
                print(f"{who} cannot be installed here and is left out: {error}")
                continue
            for figure in each[0]:
                figures.setdefault(figure, {})[who] = statistics.median(one[figure] for one in each)
    for figure, by_name in figures.items():
        print(f"{figure}: " + ", ".join(f"{who} {value:.3g}" for who, value in by_name.items()))
    if not options.rough:
        record("client", figures, estimated=ESTIMATED)


if __name__ == "__main__":
    main()
