"""A mutation finds its place by syntax, exactly one, or says that it cannot."""

import ast

import pytest

from tests.mutations import Drop, DropCall, Mutation, MutationError, Replace, mutate


@pytest.mark.parametrize(
    ("before", "mutation", "after"),
    [
        ("a(); fsync(path); b()", DropCall("fsync"), "a(); b()"),
        ("await os.sync(1)", DropCall("os.sync"), "pass"),
        ("a()\n  # why\n  b ( 1,\n2 )", Drop("b(1, 2)"), "a()"),
        ("a(); b(); c()", Drop("a()\nb()"), "c()"),
        ("if a and b or c: d()", Drop("b"), "if a or c: d()"),
        ("return a(b, c), [d, e]", Drop("b"), "return a(c), [d, e]"),
        ("return [a for a in b if a if c]", Drop("c"), "return [a for a in b if a]"),
        ("if a: raise B", Drop("raise B"), "if a: pass"),
        ("if (a\n  > b): c()", Replace("a > b", "a"), "if a: c()"),
        ("a(); b()", Replace("a()\nb()", "b()\na()"), "b(); a()"),
        ("return a(x=1, y=1)", Replace("x=1", "x=2"), "return a(x=2, y=1)"),
        ("return a['b']", Replace('"b"', '"c"'), "return a['c']"),
    ],
    ids=str,
)
def test_a_fragment_is_found_whatever_its_form(before: str, mutation: Mutation, after: str) -> None:
    """Spaces, lines, quotes and comments are no part of it."""
    method = "class A:\n async def f(self):\n  {}\n async def g(self):\n  {}\n"

    mutated = mutate(method.format(before, before), "A.f", mutation)

    assert ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(method.format(after, before)))


def test_a_variable_has_a_symbol_as_well() -> None:
    """Of a module or of a class."""
    code = "a = 1\nb: int = 1\n\nclass C:\n    a = 1"

    assert mutate(code, "a", Replace("1", "2")) == code.replace("a = 1\nb", "a = 2\nb")
    assert mutate(code, "b", Replace("1", "2")) == code.replace("int = 1", "int = 2")
    assert mutate(code, "C.a", Replace("1", "2")) == code.replace("    a = 1", "    a = 2")


@pytest.mark.parametrize(
    ("symbol", "mutation"),
    [
        ("g", DropCall("a")),
        ("f.a", DropCall("a")),
        ("f", DropCall("b")),
        ("f", DropCall("c")),
        ("f", Drop("b()\na()")),
        ("f", Drop("x > 1")),
        ("f", Replace("x", "y")),
        ("f", Replace("x > 1", "pass")),
    ],
    ids=str,
)
def test_no_mutation_is_a_guess(symbol: str, mutation: Mutation) -> None:
    """A fragment that is not there, or twice, is one that has changed since."""
    code = "def f(x):\n    a()\n    b()\n    b()\n    if x > 1:\n        return x\n"

    with pytest.raises(MutationError):
        mutate(code, symbol, mutation)
