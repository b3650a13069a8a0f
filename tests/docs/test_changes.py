"""CONTRIBUTING.md names the files that its changes touch: examples are made, tested and dropped."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from tests.docs.changes import CHANGES, NEW_FILE, Change
from tests.docs.test_contributing import named_files, rows_by_task

PARTS = ("analytics", "benchmarks", "data", "docs", "service", "templates", "tests")
FILES_MAX = {
    "Add an audit column": 3,
    "Add an audit filter": 1,
    "Add an event": 1,
    "Add a CI provider": 2,
    "Add an identity provider for sign-in": 2,
    "Add a metric": 2,
    "Add a policy rule": 4,
    "Add or change an export format": 2,
    "Change a retention tier": 1,
    "Add a migration": 2,
    "Add an API endpoint": 1,
    "Add an API endpoint with a command": 2,
    "Add an API endpoint with a page's form": 3,
    "Add an ecosystem": 5,
}
BESIDE = {
    "analytics/model/log_envelopes.py": "analytics/model/envelopes.py",
    "service/ci/verifier/usage.py": "service/audit/scrubber.py",
    "service/cli/orgs.py": "service/cli/artifacts.py",
    "service/orgs/domains.py": "service/orgs/projects.py",
    "service/orgs/teams.py": "service/orgs/projects.py",
    "service/store/migrations/versions/9999_example.py": "service/store/migrations/versions/",
    "service/store/tables/orgs.py": "service/store/tables/",
}
"""Files that a row names by the folder that they are in, or by one like them."""

PACKAGES = {"service/packages/example": "service/packages/npm/"}
"""New packages, which a row names by one like them."""


def homes(change: Change) -> set[str]:
    """The files that the change touches, as its row names them; a new package is one."""
    folders = {file: str(Path(file).parent) for file in change.files}
    return {BESIDE.get(file, PACKAGES.get(folder, file)) for file, folder in folders.items()}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.task)
def test_a_change_touches_the_files_of_its_row_alone(change: Change) -> None:
    named = named_files(rows_by_task()[change.task])

    assert homes(change) <= set(named)
    assert len(homes(change)) <= FILES_MAX[change.task]


def changed_copy(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "local")
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    for change in CHANGES:
        for name, added in change.lines.items():
            is_new = NEW_FILE in added
            assert (folder / name).exists() != is_new, name
            (folder / name).parent.mkdir(exist_ok=True)
            code = "" if is_new else (folder / name).read_text()
            for before, lines in added.items():
                assert is_new or code.count(before) == 1, f"{name} has {before!r} not exactly once"
                code = lines if is_new else code.replace(before, before + lines)
            (folder / name).write_text(code)


@pytest.mark.slow
def test_no_other_file_has_to_change(tmp_path: Path) -> None:
    """Otherwise the fact has a second declaration, which this copy lacks."""
    changed_copy(tmp_path)
    plugins = ("no:cacheprovider", "pytest_asyncio.plugin", "pytest_timeout")
    command = [sys.executable, "-m", "pytest", "-q", *(f"-p{plugin}" for plugin in plugins)]
    ran = subprocess.run(
        [*command, "tests/docs/example_changes.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the rest take longer than the tests
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
