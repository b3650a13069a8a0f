"""Builds the wheel of the client: the commands that work on a server, without what a server needs.

Which modules it has follows from their imports: all command modules that work on a server, and what
they import, as long as that needs no other distribution than DEPENDENCIES. Imports inside functions
count only if they can be met: what works on a data dir says that it needs the whole service.

    python requirements/client.py FOLDER    writes countersign_client-VERSION-py3-none-any.whl there
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from service.cli.commands import Command, CommandPlace
from service.cli.root import declared_commands
from service.core.version import CLIENT_DISTRIBUTION, service_version

REPOSITORY = Path(__file__).parents[1]
DEPENDENCIES = ("click", "httpx2", "msgspec", "packaging")
EVIDENCE = ("cryptography",)
"""What verification needs besides: an extra, because jobs that install need none of it."""

ON_FILES = ("service.cli.attest", "service.cli.evidence")
"""Command modules with commands that need no server and no data dir."""

OURS = ("service", "analytics")
PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "Countersign's command line: install through a server's proxy, and script its API"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = {dependencies}

[project.optional-dependencies]
evidence = {evidence}

[project.scripts]
countersign = "service.cli.main:main"

[tool.setuptools.packages.find]
include = ["service*", "analytics*"]
"""


@dataclass(frozen=True)
class Module:
    """A module of ours, with the modules that it imports: at once, and at some time."""

    path: Path
    at_once: frozenset[str]
    at_some_time: frozenset[str]


def modules() -> dict[str, Module]:
    """All modules of the service by their names."""
    found = {}
    for path in (file for top in OURS for file in sorted((REPOSITORY / top).rglob("*.py"))):
        name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return {name: _module(name, path, found) for name, path in found.items()}


def _module(name: str, path: Path, known: Mapping[str, Path]) -> Module:
    tree = ast.parse(path.read_text())
    parents = {name.rpartition(".")[0]} - {""}
    at_once = {each for node in _run_on_import(tree) for each in _imported(node, known)}
    at_some_time = {each for node in ast.walk(tree) for each in _imported(node, known)}
    return Module(path, frozenset(at_once | parents), frozenset(at_some_time | parents))


def _run_on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes outside of functions, and of blocks that are for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if is_function or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            continue
        yield node
        yield from _run_on_import(node)


def _imported(node: ast.AST, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module
        for alias in node.names:
            if f"{node.module}.{alias.name}" in known:
                yield f"{node.module}.{alias.name}"


def light_modules(ours: Mapping[str, Module]) -> set[str]:
    """Those that can be imported where only DEPENDENCIES and EVIDENCE are installed."""
    light = set(ours)
    while heavy := {
        name for name in light if not all(_is_met(each, light) for each in ours[name].at_once)
    }:
        light -= heavy
    return light


def _is_met(name: str, light: set[str]) -> bool:
    top = name.partition(".")[0]
    if top in OURS:
        return name in light
    return top in sys.stdlib_module_names or top in (*DEPENDENCIES, *EVIDENCE)


@cache
def _works_on_a_server(module: str) -> bool:
    """Whether a module declares commands, all of which work on a server."""
    declared = [
        getattr(import_module(group.module), group.function).commands[name]
        for group, commands in declared_commands().items()
        for name, command in commands.items()
        if command.module == module and import_module(module)
    ]
    places = [command.place for command in declared if isinstance(command, Command)]
    return bool(places) and not {*places} & {CommandPlace.DATA_DIR, CommandPlace.LOCAL}


def client_modules() -> dict[str, Module]:
    """The modules of the client by their names."""
    ours = modules()
    light = light_modules(ours)
    waiting = {"service.cli.main", "service.cli.root", *ON_FILES} | {
        name for name in light if name.startswith("service.cli.") and _works_on_a_server(name)
    }
    chosen: dict[str, Module] = {}
    while waiting:
        name = waiting.pop()
        chosen[name] = ours[name]
        met = {each for each in ours[name].at_some_time if each in light}
        # A command is chosen by its place alone, and not because another one mentions it.
        waiting |= {each for each in met if each not in chosen}
    return chosen


def build(folder: Path) -> Path:
    """Write the wheel to `folder`; returns its path."""
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    needed, evidence = (
        [each for each in wanted if each.startswith(names)] for names in (DEPENDENCIES, EVIDENCE)
    )
    with TemporaryDirectory() as temporary:
        source = Path(temporary)
        for module in client_modules().values():
            target = source / module.path.relative_to(REPOSITORY)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(module.path, target)
        project = PROJECT.format(
            name=CLIENT_DISTRIBUTION,
            version=service_version(),
            dependencies=needed,
            evidence=evidence,
        )
        (source / "pyproject.toml").write_text(project)
        shutil.copy(REPOSITORY / "LICENSE", source / "LICENSE")
        words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
        subprocess.run(  # noqa: S603 - of this interpreter's own pip
            [sys.executable, "-m", "pip", *words, str(folder), str(source)], check=True
        )
    return max(folder.glob("countersign_client-*.whl"), key=lambda file: file.stat().st_mtime)


if __name__ == "__main__":
    wheel = build(Path(sys.argv[1]))
    print(f"{wheel} ({wheel.stat().st_size // 1000} kB)")  # noqa: T201 - what a build says
