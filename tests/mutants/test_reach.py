"""A mutant is tried with the tests that reach its statement."""

from collections.abc import Iterator

import pytest

from tests.budgets import only_full
from tests.mutants.copied import Copy
from tests.mutants.modules import MODULES, REPOSITORY
from tests.mutants.plugins import ELSEWHERE
from tests.mutants.reach import Reach
from tests.mutants.seeded import marked

MODULE = next(module for module in MODULES if module.endswith("/packages/intervals.py"))
TEST = MODULES[MODULE][0]
INDEXED = "test_the_first_set_is_the_first_that_contains_the_version"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    made = Copy(tmp_path_factory.mktemp("copy"))
    yield made
    made.close()


def test_tests_of_a_statement_are_in_the_order_of_the_table_and_the_quickest_first() -> None:
    """Those that start processes come last: what a process does is not seen."""
    (module, (first, second, *_)) = next(item for item in MODULES.items() if len(item[1]) > 1)
    reach = Reach()
    name = f"{module} f:123"
    for file in MODULES[module]:
        reach.add(file, ([], {}))
    reach.add(first, ([], {"slow": (2, [name]), "quick": (1, [name]), "other": (1, ["x f:123"])}))
    reach.add(second, ([name], {"any": (1, []), "process": (3, [ELSEWHERE])}))

    assert reach.tests_of(module, "f:123") == [
        (first, ["quick", "slow"], 3),
        (second, ["any", "process"], 4),
    ]
    assert reach.tests_of(module, "f:124") == [(second, ["process"], 3)]


@only_full
def test_what_a_test_reaches_is_recorded(copy: Copy) -> None:
    code = (REPOSITORY / MODULE).read_text()
    with copy.with_code(MODULE, marked(code, MODULE)):
        ended, _, (_, tests) = copy.record(TEST)

    assert ended == 0
    assert {INDEXED} < {test.partition("::")[2] for test in tests}
    functions = {name.partition(":")[0] for name in tests[f"{TEST}::{INDEXED}"][1]}
    assert f"{MODULE} IntervalIndex.first" in functions


@only_full
@pytest.mark.slow
def test_chosen_tests_notice_a_change(copy: Copy) -> None:
    code = (REPOSITORY / MODULE).read_text()
    changed = code.replace("if change > 0", "if change > 1")
    only = [f"{TEST}::{INDEXED}"]

    with copy.with_code(MODULE, changed):
        ended, said = copy.run(TEST, only=only)

    assert changed != code
    assert ended == 1
    assert f"FAILED {only[0]}" in said


@only_full
@pytest.mark.slow
def test_an_endless_loop_ends_in_time(copy: Copy) -> None:
    code = (REPOSITORY / MODULE).read_text()
    with copy.with_code(MODULE, code.replace("heappop(waiting)", "pass")):
        ended, _ = copy.run(TEST, limit_s=3)

    assert ended == -9
