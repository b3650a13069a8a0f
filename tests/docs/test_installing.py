"""Nothing installs Countersign from a package index, where its name is another project's."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY

READ = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "pyproject.toml",
    "docs",
    "service",
    "analytics",
    "templates",
    "data/demo.toml",
    "tests/clients",
    "benchmarks",
    ".ci",
)
NAME = r"countersign(?:-service)?"
INSTALLS = re.compile(
    rf"""(?:(?:pip3?|pipx|uv|tool|poetry|pdm|npm|pnpm|yarn|bun)\s+(?:install|add|i|run)\b[^\n;|&#`]*?"""
    rf"""|\buvx\b[^\n;|&#`]*?|\bnpx\b[^\n;|&#`]*?)[\s'"@]{NAME}(?![\w./:-])"""
)
JOINED = re.compile(r"[\"']\s*\n\s*f?[\"']")
"""Between two parts of a text in Python."""


def documents() -> Iterator[Path]:
    """Every text that a reader or a user may copy a command from."""
    for name in READ:
        path = REPOSITORY / name
        for found in [path] if path.is_file() else sorted(path.rglob("*")):
            if found.is_file() and found.suffix not in {".png", ".pyc"}:
                yield found


def from_an_index(text: str) -> list[str]:
    """The commands in `text` that install Countersign by its name."""
    return INSTALLS.findall(JOINED.sub("", text))


def test_no_command_installs_countersign_by_its_name() -> None:
    """It would be a stranger's package, in the process that holds the audit log."""
    offenders = {
        str(path.relative_to(REPOSITORY)): found
        for path in documents()
        if (found := from_an_index(path.read_text(errors="replace")))
    }

    assert len(list(documents())) > 500
    assert offenders == {}


@pytest.mark.parametrize(
    "command",
    [
        "pip install countersign",
        "pip install 'countersign[postgres]'",
        "uv pip install --quiet countersign-service==1.0",
        "pipx run countersign --help",
        "uvx countersign",
        "uvx --from countersign-service countersign",
        "uv tool install countersign",
        "npx countersign",
        '"needs the extra: pip install"\n            " \'countersign[postgres]\'"',
    ],
)
def test_such_a_command_is_found(command: str) -> None:
    assert from_an_index(f"First run `{command}`.")


@pytest.mark.parametrize(
    "command",
    [
        ".venv/bin/pip install --no-deps --require-hashes -r requirements/postgres.txt",
        "countersign ci exec --org acme -- pip install left-pad",
        "pip install --index-url https://countersign.example/proxy/acme/pypi/simple flask",
        "pip install -e . && countersign serve",
    ],
)
def test_other_commands_are_not(command: str) -> None:
    assert not from_an_index(f"First run `{command}`.")


def test_the_distribution_has_another_name_than_the_package_on_the_index() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert project["name"] == "countersign-service"
    assert "version" not in project
    assert list(project["scripts"]) == ["countersign"]
