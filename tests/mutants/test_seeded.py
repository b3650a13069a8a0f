"""A seeded mutant changes one thing, and keeps its name while its statement stays the same."""

import ast
import builtins
from typing import Any

import pytest

from tests.mutants.modules import MODULES, REPOSITORY
from tests.mutants.seeded import marked, mutants_of


def changed(body: str) -> dict[str, list[str]]:
    """The statements that each kind of mutant makes of the body of a function."""
    code = f"def f(self):\n    {body}\n"
    found: dict[str, list[str]] = {}
    for mutant in mutants_of(code):
        function = ast.parse(mutant.applied_to(code)).body[0]
        assert isinstance(function, ast.FunctionDef)
        text = "; ".join(ast.unparse(function).splitlines()[1:])
        found.setdefault(mutant.kind, []).append(" ".join(text.split()))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("await a(b)", {"deleted": ["pass"]}),
        ("a += b", {"deleted": ["pass"]}),
        ("self.a = b", {"deleted": ["pass"]}),
        ("raise A", {"deleted": ["pass"]}),
        ("a = b", {}),
        ("_log.info(a, b)", {}),
        ("return b if a else c", {"negated": ["return b if not a else c"]}),
        ("return [a for a in b if a]", {"negated": ["return [a for a in b if not a]"]}),
        ("return a < b", {"bound": ["return a <= b"]}),
        ("return a >= b + c", {"bound": ["return a > b + c"]}),
        ("return a and b or c", {"and-or": ["return (a and b) and c", "return (a or b) or c"]}),
        ("return True", {"constant": ["return False"]}),
        ("return a[:1]", {"constant": ["return a[:2]"]}),
        ("return a(b, c, d)", {"swapped": ["return a(c, b, d)"]}),
        ("return a(b, b), a(*b, c), max(b, c), a.where(b, c)", {}),
        ("return f'{a(b, c)}'", {}),
        ("a: dict[int, 3] = b", {}),
    ],
)
def test_what_is_changed(body: str, expected: dict[str, list[str]]) -> None:
    assert changed(body) == expected


def test_blocks_are_statements_of_their_own() -> None:
    code = "class A:\n  def f(self):\n    if a:\n      b(1)\n    else:\n      c(1)\n"
    names = [mutant.name.replace(":", " ").split() for mutant in mutants_of(code)]

    assert {name[0] for name in names} == {"A.f"}
    assert len({name[1] for name in names}) == 3


def test_a_name_stays_where_other_code_changes() -> None:
    """Equal statements of one function are distinguished by their number."""
    code = "def f():\n    a(1)\n    a(1)\n"
    moved = "def g():\n    b(2)\n\n\n" + code.replace("    a(1)\n", "    a( 1 )  # why\n")

    names = [mutant.name for mutant in mutants_of(code)]

    assert len(set(names)) == len(names) == 4
    assert names == [mutant.name for mutant in mutants_of(moved) if mutant.function == "f"]


def test_marked_code_says_which_statements_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def f(a):\n  if a > 1:\n    return 2\n  else:\n    raise KeyError\n  return 3\n"
    reached: list[str] = []
    monkeypatch.setattr(builtins, "reached", reached.append, raising=False)
    names: dict[str, Any] = {}

    exec(marked(code, "a.py"), names)  # noqa: S102 - three lines of our own

    assert names["f"](2) == 2
    by_text = {f"a.py {each.statement_name}": each.statement for each in mutants_of(code)}
    assert [by_text[name] for name in reached] == ["if a > 1:", "return 2"]


@pytest.mark.parametrize("module", MODULES)
def test_every_mutant_of_a_core_module_is_code(module: str) -> None:
    code = (REPOSITORY / module).read_text()
    mutants = mutants_of(code)
    same = ast.dump(ast.parse(code))

    assert len({mutant.name for mutant in mutants}) == len(mutants) > 0
    assert [m.name for m in mutants if ast.dump(ast.parse(m.applied_to(code))) == same] == []


@pytest.mark.parametrize("module", MODULES)
def test_the_tests_of_a_core_module_exist(module: str) -> None:
    assert [test for test in MODULES[module] if not (REPOSITORY / test).exists()] == []
