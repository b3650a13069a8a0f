"""Each guard is load-bearing: taken out, the test that names it fails.

The mutants are tried on a copy of the code, so that nothing here is touched.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards import GUARDS, Guard

REPOSITORY = Path(__file__).resolve().parent.parent
PARTS = ("analytics", "data", "service", "templates", "tests")
TESTS_FAILED = 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code and its tests, without what a service has written."""
    folder = tmp_path_factory.mktemp("mutant")
    for part in PARTS:
        shutil.copytree(
            REPOSITORY / part,
            folder / part,
            ignore=shutil.ignore_patterns("__pycache__", "local"),
        )
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


def run(copy: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={"PATH": "", "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_guard_is_where_the_list_says(guard: Guard) -> None:
    """A change that moves it, or its test, has to say where to."""
    code = (REPOSITORY / guard.file).read_text()
    file, _, test = guard.test.partition("::")
    tests = (REPOSITORY / file).read_text()

    assert code.count(guard.text) == 1, f"{guard.file} holds {guard.text!r} not exactly once"
    assert f"def {test.partition('[')[0]}" in tests, f"{file} has no {test}"


@pytest.mark.slow
def test_with_all_guards_in_place_the_tests_pass(copy: Path) -> None:
    """Else one that always fails would look as if it missed its guard."""
    done = run(copy, *sorted({guard.test for guard in GUARDS}))

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_the_guard_its_test_fails(copy: Path, guard: Guard) -> None:
    """A guard that no test misses is one that the next change may lose."""
    file = copy / guard.file
    code = file.read_text()
    file.write_text(code.replace(guard.text, guard.without))
    try:
        done = run(copy, guard.test)
    finally:
        file.write_text(code)

    assert done.returncode == TESTS_FAILED, done.stdout
