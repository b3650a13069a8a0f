"""A seeded mutant changes one thing, and keeps its name while its statement stays the same."""

import ast
import builtins
from typing import Any

import pytest

from tests.budgets import sample
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
        found.setdefault(mutant.kind, []).append(" ".join(text.replace(":;", ":").split()))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("await a(b)", {"deleted": ["pass"]}),
        ("a += b", {"deleted": ["pass"]}),
        ("self.a = b", {"deleted": ["pass"]}),
        ("self = b", {"deleted": ["pass"]}),
        ("a = b", {}),
        ("_log.info(a, b)", {}),
        ("if a: return b", {"never": ["if False: return b"], "negated": ["if not a: return b"]}),
        ("if a: raise B", {"deleted": ["if a: pass"], "negated": ["if not a: raise B"]}),
        ("with a, (b): return", {"unguarded": ["if True: return"]}),
        ("with a as b: return", {}),
        ("return b if a else c", {"negated": ["return b if not a else c"]}),
        ("return [a for a in b if a]", {"negated": ["return [a for a in b if not a]"]}),
        ("return a == b", {"negated": ["return not a == b"]}),
        ("return a < b", {"bound": ["return a <= b"]}),
        ("return a >= (b.c)", {"bound": ["return a > b.c"]}),
        ("return max(a, b)", {"bound": ["return min(a, b)"], "dropped": ["return b", "return a"]}),
        ("return max(a, *b)", {"bound": ["return min(a, *b)"]}),
        ("return -a", {"sign": ["return a"]}),
        (
            "return a and b or c",
            {"dropped": ["return c", "return a and b", "return b or c", "return a or c"]},
        ),
        ("return a - b", {"dropped": ["return a"]}),
        ("return a & b", {"dropped": ["return a", "return b"]}),
        ("return a.where(b, c)", {"dropped": ["return a.where(c)", "return a.where(b)"]}),
        ("return islice(a, *b)", {"dropped": ["return a"]}),
        (
            "return f((a, *b, c))",
            {"dropped": ["return f((*b, c))", "return f((a, c))", "return f((a, *b))"]},
        ),
        ("return True", {"constant": ["return False"]}),
        ("return a[:1]", {"constant": ["return a[:2]"], "dropped": ["return a"]}),
        ("return a(b, c, d)", {"swapped": ["return a(c, b, d)"]}),
        ("return a(b, b), a(*b, c)", {"dropped": ["return (a(*b, c),)", "return (a(b, b),)"]}),
        ("return f'{a(b, c)}'", {}),
        ("a: dict[int, 3] = b", {}),
    ],
)
def test_what_is_changed(body: str, expected: dict[str, list[str]]) -> None:
    assert changed(body) == expected


def test_statements_of_a_module_that_call_something_are_changed() -> None:
    """Conditions of SQL; constants are limits, which tests know by their names."""
    code = "A = 1\nB = and_(c, d == 1)\n"

    assert [(mutant.kind, mutant.text) for mutant in mutants_of(code)] == [
        ("dropped", "(and_((d == 1)))"),
        ("dropped", "(and_((c)))"),
    ]


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


@sample(3)
@pytest.mark.parametrize("module", MODULES)
def test_every_mutant_of_a_core_module_is_code(module: str) -> None:
    code = (REPOSITORY / module).read_text()
    mutants = mutants_of(code)
    same = ast.dump(ast.parse(code))

    assert len({mutant.name for mutant in mutants}) == len(mutants) > 0
    assert [m.name for m in mutants if ast.dump(ast.parse(m.applied_to(code))) == same] == []


def test_core_modules_and_their_tests_exist() -> None:
    files = {file for module, tests in MODULES.items() for file in (module, *tests)}

    assert [file for file in sorted(files) if not (REPOSITORY / file).exists()] == []
