"""Each test checks something: a test that only runs code passes whatever that code returns."""

import ast
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, Self, TypeAlias

from service.core.settings import REPOSITORY
from tests.budgets import only_full

TESTS: Final = REPOSITORY / "tests"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_ASSERTING_CALLS: Final = frozenset({"raises", "warns", "fail"})
"""Functions of pytest."""

_NAMES: Final = ("assert_", "check", "expect")
"""What the names of helpers that assert begin with, so that a test shows what it checks.

`expect` is also Playwright's.
"""


@dataclass(frozen=True, slots=True)
class Checks:
    """What a function does to check something."""

    name: str
    asserts: bool
    """Whether it has an assertion in its own text."""
    called: frozenset[str]
    """Names of the functions and methods that it calls."""

    @classmethod
    def of(cls, function: Function) -> Self:
        """Those of `function`, with what is nested in it."""
        called: set[str] = set()
        asserts = False
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                asserts = True
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called.add(node.func.attr)
        return cls(function.name, asserts or bool(_ASSERTING_CALLS & called), frozenset(called))


def functions(source: str) -> list[Checks]:
    nodes = ast.parse(source).body
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            nodes.extend(node.body)
    return [
        Checks.of(node)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def asserting_helpers(helpers: list[Checks]) -> set[str]:
    """The names of `helpers` that assert, themselves or through another one, and say so."""
    names = {helper.name for helper in helpers if helper.asserts} | {"expect"}
    size = 0
    while len(names) > size:
        size = len(names)
        names |= {helper.name for helper in helpers if names & helper.called}
    return {name for name in names if name.lstrip("_").startswith(_NAMES)}


def without_assertion(sources: dict[Path, str]) -> list[str]:
    """The tests in `sources` that assert nothing, as pytest names them."""
    by_file = {path: functions(source) for path, source in sources.items()}
    every = chain.from_iterable(by_file.values())
    asserting = asserting_helpers([each for each in every if not each.name.startswith("test_")])
    return [
        f"{path}::{test.name}"
        for path, tests in by_file.items()
        for test in tests
        if test.name.startswith("test_") and not test.asserts and not asserting & test.called
    ]


@only_full
def test_every_test_asserts() -> None:
    """In its own text, or through a helper whose name says that it does."""
    sources = {path.relative_to(REPOSITORY): path.read_text() for path in TESTS.rglob("*.py")}

    assert len(sources) > 100
    assert without_assertion(sources) == []


def test_a_test_that_only_runs_code_is_named() -> None:
    source = """
def assert_well(): assert True
def check_deep(): assert_well()
def assert_nothing(): print()
def load(): assert True
def test_statement(): assert True
def test_raises():
    with pytest.raises(ValueError): print()
async def test_helper(): await module.check_deep()
def test_runs(): print()
def test_calls_an_empty_helper(): assert_nothing()
def test_calls_a_helper_with_another_name(): load()
"""

    assert without_assertion({Path("t.py"): source}) == [
        "t.py::test_runs",
        "t.py::test_calls_an_empty_helper",
        "t.py::test_calls_a_helper_with_another_name",
    ]
