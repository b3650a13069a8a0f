"""Changes of Python code that are addressed by symbol, for tests/test_guards.py.

A fragment is compared with the syntax tree of its symbol and has to occur in it exactly once, so
neither its line nor its format matters.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LISTS: Final = ("args", "elts", "ifs", "values")
"""Fields from which one expression can be dropped: arguments, elements, conditions, operands."""


class MutationError(Exception):
    """The symbol or the fragment is not in the code exactly once, or cannot be changed that way."""


@dataclass(frozen=True, slots=True)
class DropCall:
    """Without the statement that calls `name` (as it is written there, such as `os.fsync`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Without `fragment`: statements, or one of several arguments, elements or operands."""

    fragment: str


@dataclass(frozen=True, slots=True)
class Replace:
    """`replacement` in place of `fragment`: statements, one expression, or one `name=value`."""

    fragment: str
    replacement: str


Mutation: TypeAlias = DropCall | Drop | Replace


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a fragment was found: `count` nodes from `index` of a list, or one field's node."""

    parent: ast.AST
    field: str
    index: int | None = None
    count: int = 1

    def put(self, nodes: Sequence[ast.AST]) -> None:
        """Have `nodes` there."""
        if self.index is None:
            (node,) = nodes
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index : self.index + self.count] = nodes


def mutate(code: str, symbol: str, mutation: Mutation) -> str:
    """`code` with `mutation` in `symbol`: a dotted path of classes, functions or a variable.

    Raises MutationError unless exactly one place fits.
    """
    tree = ast.parse(code)
    scope = _find_symbol(tree, symbol)
    match mutation:
        case DropCall(name):
            _drop(tree, _only(_calls(scope, name), f"call of {name}", symbol))
        case Drop(fragment):
            _drop(tree, _only(_matches(scope, fragment), fragment, symbol))
        case Replace(fragment, replacement):
            place = _only(_matches(scope, fragment), fragment, symbol)
            place.put(_replacement(place, replacement))
    return ast.unparse(ast.fix_missing_locations(tree))


def _find_symbol(tree: ast.Module, symbol: str) -> ast.AST:
    scope: ast.AST = tree
    for name in symbol.split("."):
        named = [node for node in _statements(scope) if name in _names(node)]
        if len(named) != 1:
            raise MutationError(f"{symbol}: {len(named)} definitions of {name}")
        (scope,) = named
    return scope


def _statements(scope: ast.AST) -> Iterator[ast.AST]:
    """The statements of a scope, those in its blocks included, those of inner scopes not."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _statements(node)


def _names(node: ast.AST) -> set[str]:
    """What the statement `node` defines."""
    if isinstance(node, _SCOPES):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _only(places: Iterator[_Place], fragment: str, symbol: str) -> _Place:
    found = list(places)
    if len(found) != 1:
        raise MutationError(f"{symbol} has {len(found)} of: {fragment}")
    return found[0]


def _calls(scope: ast.AST, name: str) -> Iterator[_Place]:
    for place, (node,) in _places(scope, 1):
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(value, ast.Call) and ast.unparse(value.func) == name:
                yield place


def _matches(scope: ast.AST, fragment: str) -> Iterator[_Place]:
    wanted: Sequence[ast.AST] = ast.parse(fragment).body
    if len(wanted) == 1 and isinstance(wanted[0], ast.Expr):
        wanted = [wanted[0].value]
    forms = [wanted]
    if keyword := _keyword(wanted):
        forms.append([keyword])
    # Most nodes are of another kind; to dump each with all that is in it takes long.
    dumps = {tuple(map(type, form)): [ast.dump(node) for node in form] for form in forms}
    for place, nodes in _places(scope, len(wanted)):
        dump = dumps.get(tuple(map(type, nodes)))
        if dump is not None and [ast.dump(node) for node in nodes] == dump:
            yield place


def _keyword(statements: Sequence[ast.AST]) -> ast.keyword | None:
    """What looks like an assignment, as the argument of a call."""
    match statements:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return ast.keyword(name, value)
    return None


def _places(scope: ast.AST, count: int) -> Iterator[tuple[_Place, Sequence[ast.AST]]]:
    """Every run of `count` nodes below `scope`."""
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list):
                for index in range(len(value) - count + 1):
                    nodes = value[index : index + count]
                    if all(isinstance(node, ast.AST) for node in nodes):
                        yield _Place(parent, field, index, count), nodes
            elif isinstance(value, ast.AST) and count == 1:
                yield _Place(parent, field), [value]


def _drop(tree: ast.Module, place: _Place) -> None:
    parent = place.parent
    if isinstance(parent, ast.Expr):  # a statement that is nothing but the expression
        place = next(found for found, (node,) in _places(tree, 1) if node is parent)
        parent = place.parent
    nodes = getattr(parent, place.field)
    if place.index is None or isinstance(parent, ast.Dict | ast.Compare):
        raise MutationError(f"cannot be dropped: {ast.unparse(nodes)}")
    if isinstance(nodes[place.index], ast.expr) and place.field not in _LISTS:
        raise MutationError(f"cannot be dropped: {ast.unparse(nodes[place.index])}")
    place.put([])
    if isinstance(parent, ast.BoolOp) and len(nodes) == 1:
        whole = next(found for found, (node,) in _places(tree, 1) if node is parent)
        whole.put(nodes)
    elif place.field == "body" and not nodes:
        nodes.append(ast.Pass())


def _replacement(place: _Place, text: str) -> Sequence[ast.AST]:
    statements = ast.parse(text).body
    nodes = getattr(place.parent, place.field)
    replaced = nodes if place.index is None else nodes[place.index]
    if isinstance(replaced, ast.stmt):
        return statements
    if isinstance(replaced, ast.keyword) and (keyword := _keyword(statements)):
        return [keyword]
    if len(statements) != 1 or not isinstance(statements[0], ast.Expr):
        raise MutationError(f"no expression: {text}")
    return [statements[0].value]
