"""The Makefile's commands are what they say: make itself cuts and expands text."""

import subprocess

from service.settings import REPOSITORY


def commands(target: str) -> list[str]:
    """What `make target` would run, as if nothing were there yet."""
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_benchmarks_are_installed_with_all_their_extras() -> None:
    """Arguments of make's own functions end at a comma."""
    installs = [line for line in commands("bench") if line.startswith("install() ")]

    assert [line.rpartition("install ")[2] for line in installs] == [
        "-e .",
        "-e '.[dev]'",
        "-e '.[dev,bench]'",
        "--no-deps chdb-core",
    ]
