"""Each guard is load-bearing: taken out, the test that names it fails.

The mutants are tried on a copy of the code, so that nothing here is touched. Their tests run as in
`make test`, so a guard can name no test that only `make test-all` runs.

With SINCE=<revision> only the guards are tried whose code or test differs from that revision, or
from where this branch left it.
"""

import ast
import os
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

from tests.budgets import only_full
from tests.guards import GUARDS, Guard
from tests.mutants.copied import Copy
from tests.mutants.modules import REPOSITORY
from tests.mutations import MutationError

SINCE = os.environ.get("SINCE")
TESTS_FAILED = 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """What runs tests of a copy of the code."""
    made = Copy(tmp_path_factory.mktemp("mutant"))
    yield made
    made.close()


def changed_files(revision: str) -> set[str]:
    """What differs from `revision`, or is not known to git."""
    listed = ""
    for command in (
        ["diff", "--name-only", "--merge-base", revision],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        git = ["git", "-C", str(REPOSITORY), *command]
        listed += subprocess.run(git, check=True, capture_output=True, text=True).stdout
    return set(listed.splitlines())


def guards_to_try(revision: str | None) -> list[Guard]:
    """All guards, or those that changes since `revision` may concern."""
    if not revision:
        return GUARDS
    changed = changed_files(revision)
    return [guard for guard in GUARDS if changed & {guard.file, path_of(guard.test)}]


@cache
def as_parsed(code: str) -> str:
    """`code` as its syntax tree is written, without comments."""
    return ast.unparse(ast.parse(code))


def fault_of(guard: Guard) -> str | None:
    """Why the guard cannot be taken out, or has no test; None if it can and has."""
    code = (REPOSITORY / guard.file).read_text()
    file, _, within = guard.test.partition("::")
    test = within.rpartition("::")[2].partition("[")[0]
    try:
        if guard.without(code) == as_parsed(code):
            return "changes nothing"
    except MutationError as error:
        return str(error)
    is_there = not test or f"def {test}(" in (REPOSITORY / file).read_text()
    return None if is_there else f"{file} has no {test}"


def test_every_guard_is_where_the_list_says() -> None:
    """A change of what is guarded, or of its test, has to be a change of the list as well."""
    faults = {guard.name: fault for guard in GUARDS if (fault := fault_of(guard))}

    assert faults == {}
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


def test_make_test_runs_the_test_of_each_guard(request: pytest.FixtureRequest) -> None:
    """Else the guard would seem to be caught: pytest finds no test, and that is no success."""
    option = request.config.option
    if option.file_or_dir or option.markexpr or option.keyword:
        pytest.skip("a part of the tests was asked for")
    run = {item.nodeid for item in request.session.items}
    run |= {nodeid.partition("[")[0] for nodeid in run} | {path_of(nodeid) for nodeid in run}

    missing = [guard.test for guard in GUARDS if guard.test not in run]
    assert missing == [], "\n".join(missing)


def path_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def one_of_each_file(guards: list[Guard]) -> list[str]:
    """Of each file with tests of `guards` one."""
    return list({path_of(guard.test): guard.test for guard in guards}.values())


@only_full
@pytest.mark.slow
@pytest.mark.parametrize("test", one_of_each_file(guards_to_try(SINCE)))
def test_with_all_guards_in_place_the_tests_pass(copy: Copy, test: str) -> None:
    """Else one that always fails would look as if it missed its guard.

    That each passes where the code is, the suite itself shows; here, that a copy is as good for
    those that are tried. Each is run as without its guard: alone, in a process of its own.
    """
    code, said = copy.run(test)

    assert code == 0, said


@only_full
@pytest.mark.slow
@pytest.mark.parametrize("guard", guards_to_try(SINCE), ids=lambda guard: guard.name)
def test_without_the_guard_its_test_fails(copy: Copy, guard: Guard) -> None:
    """A guard that no test misses is one that the next change may lose."""
    code = (REPOSITORY / guard.file).read_text()
    with copy.with_code(guard.file, guard.without(code)):
        ended, said = copy.run(guard.test)

    assert ended == TESTS_FAILED, said
