"""The mutants of a module: each makes one small change in one statement of a function.

A mutant is named by its function and its statement, so that it is found again when the code around
it changes, or when the function moves to another module.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeGuard

_OTHER_BOUND: Final = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_LOGGERS: Final = ("_log.", "self._log.")
_VARIADIC: Final = frozenset({"and_", "or_", "where"})
"""Calls that have a meaning without any one of their arguments."""

_BOUNDS: Final = {"max": "min", "min": "max"}
_SYMMETRIC: Final = _VARIADIC | _BOUNDS.keys() | {"group_by"}
_PASSING: Final = frozenset({"asyncio.shield", "islice", "replace", "self.within", "sorted"})
"""Calls that return something like their first argument."""

_DIGEST_CHARS: Final = 6
_MARK: Final = "import builtins; _reached = getattr(builtins, 'reached', len)"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int]
"""Where a fragment begins and ends, in bytes of the code."""

Change = tuple[str, Place, str]
"""Its kind, where it is, and what stands there then."""


@dataclass(frozen=True)
class Mutant:
    """In the code of its module the fragment at `place` becomes `text`."""

    function: str
    statement: str
    kind: str
    number: int
    """Counts mutants of one kind in one statement, and in others that read the same."""

    place: Place
    text: str

    @property
    def name(self) -> str:
        """Stays the same while the statement does."""
        return f"{self.statement_name}:{self.kind}:{self.number}"

    @property
    def statement_name(self) -> str:
        """That of its statement, and of others of the function that read the same."""
        return _statement_name(self.function, self.statement)

    def applied_to(self, code: str) -> str:
        whole = code.encode()
        start, end = self.place
        return (whole[:start] + self.text.encode() + whole[end:]).decode()


def mutants_of(code: str) -> list[Mutant]:
    places = _Places(code)
    numbers = Counter[tuple[str, str, str]]()
    found: list[Mutant] = []
    tree = ast.parse(code)
    for function, statement, bound in chain(_in_functions(tree), _of_module(tree)):
        told = _told(statement)
        for kind, place, text in _changes(statement, places, bound):
            if function or kind != "constant":
                key = function, told, kind
                numbers[key] += 1
                found.append(Mutant(function, told, kind, numbers[key], place, text))
    return found


def _in_functions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt, set[str]]]:
    """The statements of functions, each with the names that have a value before it."""
    for name, function in _functions(tree, ""):
        arguments = function.args
        bound = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
        for statement in _statements(function.body):
            yield name, statement, bound
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                bound |= {each.id for each in ast.walk(statement) if _is_bound(each)}


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _of_module(tree: ast.Module) -> Iterator[tuple[str, ast.stmt, set[str]]]:
    """Statements of the module itself that call something: commonly conditions and SQL."""
    for statement in tree.body:
        match statement:
            case ast.Assign(value=ast.Call()) | ast.AnnAssign(value=ast.Call()):
                yield "", statement, set()


def marked(code: str, module: str) -> str:
    """The code with a call of `builtins.reached` before each statement that can have mutants.

    It is given `module` and the statement's name, and may be missing.
    """
    tree = ast.parse(code)
    for name, function in _functions(tree, ""):
        _mark(function.body, f"{module} {name}")
    _mark(tree.body, f"{module} ")
    is_docstring = ast.get_docstring(tree) is not None
    tree.body[is_docstring:is_docstring] = ast.parse(_MARK).body
    return ast.unparse(tree)


def _mark(body: list[ast.stmt], function: str) -> None:
    marked_body: list[ast.stmt] = []
    for statement in body:
        is_own = not isinstance(statement, ast.ClassDef | Function)
        if is_own and not _is_ignored(statement):
            name = _statement_name(function, _told(statement))
            marked_body += ast.parse(f"_reached({name!r})").body
            for block in _blocks(statement):
                _mark(block, function)
        marked_body.append(statement)
    body[:] = marked_body


class _Places:
    """Finds the bytes of syntax nodes."""

    def __init__(self, code: str) -> None:
        self._code = code.encode()
        lines = self._code.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> Place:
        """Its first byte, and the first one behind it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The code of the node."""
        return self._between(self.of(node))

    def head(self, statement: ast.stmt, last: ast.expr) -> Place:
        """From the first byte of a statement to the colon behind its `last` expression."""
        return self.of(statement)[0], self._code.index(b":", self.of(last)[1])

    def exchanged(self, first: ast.expr, second: ast.expr) -> tuple[Place, str]:
        """Both nodes and what lies between them, with each in the place of the other."""
        (start, first_end), (second_start, end) = self.of(first), self.of(second)
        between = self._between((first_end, second_start))
        return (start, end), self.text(second) + between + self.text(first)

    def _between(self, place: Place) -> str:
        return self._code[slice(*place)].decode()


def _functions(parent: ast.AST, within: str) -> Iterator[tuple[str, Function]]:
    """Functions and methods by their names, those of others among them."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | Function):
            name = f"{within}{node.name}"
            if isinstance(node, Function):
                yield name, node
            yield from _functions(node, f"{name}.")
        else:
            yield from _functions(node, within)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a body and of the blocks in it, without those of inner functions and classes."""
    for statement in body:
        if isinstance(statement, ast.ClassDef | Function) or _is_ignored(statement):
            continue
        yield statement
        for block in _blocks(statement):
            yield from _statements(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def _is_ignored(statement: ast.stmt) -> bool:
    """Docstrings, and lines of the log, which no test has to notice."""
    if not isinstance(statement, ast.Expr):
        return False
    is_text = isinstance(statement.value, ast.Constant)
    return is_text or ast.unparse(statement).removeprefix("await ").startswith(_LOGGERS)


def _statement_name(function: str, told: str) -> str:
    return f"{function}:{hashlib.sha256(told.encode()).hexdigest()[:_DIGEST_CHARS]}"


def _told(statement: ast.stmt) -> str:
    """The statement in one form, without its blocks."""
    return ast.unparse(statement).partition("\n")[0]


def _changes(statement: ast.stmt, places: _Places, bound: set[str]) -> Iterator[Change]:
    """What can be changed in a statement without its blocks."""
    if _can_be_left_out(statement, bound):
        yield "deleted", places.of(statement), "pass"
    match statement:
        case ast.If(test=test, body=body, orelse=[]):
            if len(body) > 1 or not _can_be_left_out(body[0], bound):
                yield "never", places.of(test), "False"
        case ast.With(items=items) | ast.AsyncWith(items=items):
            if not any(item.optional_vars for item in items):
                yield "unguarded", places.head(statement, items[-1].context_expr), "if True"
    for node in _own_nodes(statement):
        for test in _conditions(node):
            yield "negated", places.of(test), f"(not ({places.text(test)}))"
        yield from _changed_operators(node, places)
        yield from _changed_values(node, places)
        yield from _dropped(node, places)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=conditions):
            return conditions
        case ast.Return(value=ast.Compare(ops=[operator]) as compared):
            return [] if type(operator) in _OTHER_BOUND else [compared]
        case ast.Return(value=ast.UnaryOp(op=ast.Not()) as condition):
            return [condition]
    return []


def _changed_operators(node: ast.AST, places: _Places) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            if other := _OTHER_BOUND.get(type(operator)):
                text = f"({places.text(left)} {other} {places.text(right)})"
                yield "bound", places.of(node), text
        case ast.Call(func=ast.Name(id="min" | "max" as name) as called):
            yield "bound", places.of(called), _BOUNDS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield "sign", places.of(node), places.text(operand)


def _changed_values(node: ast.AST, places: _Places) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", places.of(node), str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", places.of(node), str(value + 1)
        case ast.Call(func=called, args=[first, second, *_]):
            if _last_name(called) not in _SYMMETRIC and _are_different(first, second):
                yield "swapped", *places.exchanged(first, second)


def _dropped(node: ast.AST, places: _Places) -> Iterator[Change]:
    """One part fewer: of a condition, a sum, the arguments of a call, a key."""
    match node:
        case ast.BoolOp(op=operator, values=values):
            joint = " or " if isinstance(operator, ast.Or) else " and "
            texts = [joint.join(texts) for texts in _with_one_fewer(values, places)]
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            texts = [places.text(left), places.text(right)]
        case ast.BinOp(left=part, op=ast.Add() | ast.Sub()):
            texts = [places.text(part)]
        case ast.Subscript(value=part, slice=ast.Slice(), ctx=ast.Load()):
            texts = [places.text(part)]
        case ast.Tuple(elts=[_, _, *_] as values, ctx=ast.Load()):
            texts = [f"{', '.join(texts)}," for texts in _with_one_fewer(values, places)]
        case ast.Call(func=called, args=[first, *_] as values):
            texts = _dropped_arguments(called, first, values, places)
        case _:
            return
    for text in texts:
        yield "dropped", places.of(node), f"({text})"


def _dropped_arguments(
    called: ast.expr, first: ast.expr, values: list[ast.expr], places: _Places
) -> list[str]:
    """The call without one of its arguments, or what it is given in place of the call."""
    if ast.unparse(called) in _PASSING:
        return [places.text(first)]
    each = [", ".join(texts) for texts in _with_one_fewer(values, places)]
    if _last_name(called) in _VARIADIC:
        return [f"{places.text(called)}({arguments})" for arguments in each]
    is_of_two = len(each) == 2 and not any(isinstance(value, ast.Starred) for value in values)
    return each if ast.unparse(called) in _BOUNDS and is_of_two else []


def _with_one_fewer(values: list[ast.expr], places: _Places) -> Iterator[list[str]]:
    texts = [
        places.text(value) if isinstance(value, ast.Starred) else f"({places.text(value)})"
        for value in values
    ]
    for index in range(len(texts)):
        yield texts[:index] + texts[index + 1 :]


def _last_name(called: ast.expr) -> str:
    return ast.unparse(called).rpartition(".")[2]


def _can_be_left_out(statement: ast.stmt, bound: set[str]) -> bool:
    """Without the first assignment of a name what follows would fail, which shows nothing."""
    match statement:
        case (
            ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete()
        ):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in bound
        case ast.Assign(targets=[target]):
            return isinstance(target, ast.Attribute | ast.Subscript)
    return False


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of its blocks, annotations and texts."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        yield node
        left_out = {id(getattr(node, "annotation", None))}
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            # The parts of a formatted text have no places of their own.
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case | ast.JoinedStr)
            and id(child) not in left_out
        ]


def _are_different(first: ast.expr, second: ast.expr) -> bool:
    is_starred = any(isinstance(each, ast.Starred | ast.GeneratorExp) for each in (first, second))
    return not is_starred and ast.dump(first) != ast.dump(second)
