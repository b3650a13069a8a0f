"""Libraries are used as they are offered: none of their parts is exchanged or private."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
OWN: Final = ("analytics", "benchmarks", "service", "tests")

OFFERED: Final = frozenset({"_asdict", "_exit", "_get_current_object", "_mapping"})
"""Documented names, whatever they begin with."""

TOLERATED: Final = {
    "_dsse_envelope": "of sigstore's bundles, to verify what `intoto` entries of its log attest",
    "_inner": "the same",
    "_verify_common_signing_cert": "the same: sigstore has no other way for such an entry",
    "_conn": "aiosqlite offers no other way to its connection",
    "_execute": "aiosqlite offers no other way to run something in its thread",
    "_split_scope": "what pytest-xdist's own schedulers override",
    "_transport": "asyncpg offers no other way to its socket",
    "_tx": "to ask whether aiosqlite's queue is empty",
    "_is_ready": "of Python's own queue",
}

SETTINGS: Final = frozenset({"builtins", "os", "prometheus_client", "quart", "secrets", "sys"})
"""Modules with attributes that are meant to be set, or that a tool sets in its own process."""


_KINDS: Final = (
    ast.Assign,
    ast.AsyncFunctionDef,
    ast.Attribute,
    ast.Call,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
    ast.Name,
)


def nodes_of(code: str) -> list[ast.AST]:
    """What is looked at."""
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, _KINDS)]


@cache
def modules() -> dict[Path, list[ast.AST]]:
    """The code of the repository."""
    files = [file for package in OWN for file in (ROOT / package).rglob("*.py")]
    return {file.relative_to(ROOT): nodes_of(file.read_text()) for file in files}


@cache
def own_names() -> frozenset[str]:
    """What the repository defines itself."""
    found: set[str] = set()
    for node in chain.from_iterable(modules().values()):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(found)


def is_private(name: str) -> bool:
    """Whether it begins with one underscore."""
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in OFFERED | TOLERATED.keys()
    )


def imported(nodes: list[ast.AST]) -> dict[str, str]:
    """What the names that a module imports from libraries stand for."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.asname or name.name.split(".")[0]: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return {name: path for name, path in found.items() if path.split(".")[0] not in OWN}


def root_of(node: ast.expr) -> str:
    """The name that an expression with dots begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Attributes that nothing of ours defines, read, set or named in a call of `setattr`."""
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) if is_private(name) and name not in own_names():
                yield ast.unparse(node)
            case ast.Call(func=function, args=[ast.Constant(value=str(path)), *_]):
                is_set = ast.unparse(function).endswith("setattr")
                names = [name for name in path.split(".") if is_private(name)]
                if is_set and path.split(".")[0] not in OWN and names:
                    yield path


def exchanged(nodes: list[ast.AST]) -> Iterator[str]:
    """Attributes of a library that are assigned to."""
    libraries = imported(nodes)
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            library = libraries.get(root_of(target), "")
            is_attribute = isinstance(target, ast.Attribute)
            if is_attribute and library and library.split(".")[0] not in SETTINGS:
                yield ast.unparse(target)


def overridden(nodes: list[ast.AST]) -> Iterator[str]:
    """Private methods of a library's class in a class that is derived from it."""
    libraries = imported(nodes)
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        private = [
            part.name
            for part in node.body
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and is_private(part.name)
        ]
        bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
        for base in bases if private else []:
            if path := libraries.get(base.partition(".")[0]):
                yield from (f"{node.name}.{name}" for name in private if has(path, base, name))


def has(path: str, base: str, name: str) -> bool:
    """Whether the class `base`, of which the first name was imported as `path`, has it."""
    module, _, first = path.rpartition(".")
    is_module = base.partition(".")[0] == path.partition(".")[0]
    found: object = importlib.import_module(path if is_module else module)
    for part in base.split(".")[1:] if is_module else [first, *base.split(".")[1:]]:
        found = getattr(found, part)
    return hasattr(found, name)


@pytest.mark.parametrize("faults", [private_names, exchanged, overridden])
def test_no_private_part_of_a_library_is_used_or_exchanged(faults) -> None:
    found = {str(file): [*faults(nodes)] for file, nodes in modules().items()}

    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (private_names, "import httpx\nhttpx.get(1)._unknown_part"),
        (private_names, "patch.setattr('httpx.client._unknown_part', 1)"),
        (exchanged, "import a.b\na.b.C = 1"),
        (exchanged, "from a import b as c\nc.method = 1"),
        (overridden, "from logging import Logger as L\nclass A(L):\n  def _log(self): ..."),
        (overridden, "import logging\nclass A(logging.Logger):\n  def _log(self): ..."),
    ],
)
def test_what_is_found(faults, code: str) -> None:
    assert len([*faults(nodes_of(code))]) == 1
