"""Imports run one way: tests and benchmarks, then service, then analytics."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "analytics": {
        "service",
        "tests",
        "benchmarks",
        "quart",
        "sqlalchemy",
        "asyncio",
        "httpx2",
        "httpx",
    },
    "service": {"tests", "benchmarks", "httpx"},
}


ROOMS = (
    "core",
    "store",
    "ci",
    "access",
    "web",
    "orgs",
    "audit",
    "packages",
    "trust",
    "pages",
    "app",
    "cli",
)
"""The packages of the service, each of which imports only those before it."""

APART = {"packages", "trust"}
"""Two that stand on the same floor: neither imports the other."""


def imported_packages(path: Path) -> set[str]:
    """The top-level packages that the module at `path` imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_module_imports_against_the_direction(package: str) -> None:
    """The audit lake must stay usable without HTTP and without a database."""
    modules = list((ROOT / package).rglob("*.py"))

    offenders = {
        str(module.relative_to(ROOT)): wrong
        for module in modules
        if (wrong := imported_packages(module) & FORBIDDEN[package])
    }

    assert len(modules) > 5
    assert offenders == {}


def imported_parts(path: Path, package: str) -> set[str]:
    """The parts of `package` that the module at `path` imports from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            modules = [f"{package}.{name.name}" for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in modules if name.startswith(f"{package}.")}
    return found


WITHIN_ROOMS = {
    "service/ci/issuers": "service.ci.verifier",
    "service/trust/explain": "service.trust.rejected",
}
"""Packages that serve whatever asks about tokens, and a neighbour that each must not know."""


@pytest.mark.parametrize("package", WITHIN_ROOMS)
def test_what_judges_tokens_knows_nothing_of_who_asks(package: str) -> None:
    """Keys and rules must serve admin requests, ingest, explanations and a proxy alike."""
    modules = list((ROOT / package).rglob("*.py"))
    neighbour = WITHIN_ROOMS[package]

    offenders = [
        module.name
        for module in modules
        if any(f"{name}.".startswith(f"{neighbour}.") for name in imported_modules(module))
    ]

    assert len(modules) > 3
    assert offenders == []


def imported_modules(path: Path) -> set[str]:
    """What the module at `path` imports, with the names that it takes from there."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.parametrize("top", ["service", "analytics"])
def test_no_modules_import_each_other(top: str) -> None:
    """Not by an import inside a function either, which hides a circle and does not end it."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / top).rglob("*.py")
    }
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    edges = {
        name: (imported_modules(path) & modules.keys()) - {name} - packages
        for name, path in modules.items()
    }

    # CycleError names the modules of the cycle.
    order = list(TopologicalSorter(edges).static_order())

    assert len(order) > 80


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_the_service_import_downwards(room: str) -> None:
    """Each can be read, changed and tested without those above it."""
    modules = list((ROOT / "service" / room).rglob("*.py"))
    below = set(ROOMS[: ROOMS.index(room) + 1])
    if room in APART:
        below -= APART - {room}

    offenders = {
        str(module.relative_to(ROOT)): wrong
        for module in modules
        if (wrong := imported_parts(module, "service") - below)
    }

    assert len(modules) > 5
    assert offenders == {}


def test_the_service_is_nothing_but_its_rooms() -> None:
    """A module at the root, or an unnamed package, would escape the rule above."""
    root = ROOT / "service"

    assert [module.name for module in root.glob("*.py")] == ["__init__.py"]
    assert {package.parent.name for package in root.glob("*/__init__.py")} == set(ROOMS)


ANALYTICS = {
    "model": set(),
    "storage": {"model"},
    "cache": {"model", "storage"},
    "statistics": {"model", "storage", "cache"},
    "query": {"model", "storage", "cache", "statistics"},
    "export": {"model"},
    "imports": {"model", "storage", "export"},
    "open_table": {"model", "storage"},
    "evidence": {"model", "storage", "export"},
}
"""The packages of the audit lake, and which others each may import."""


@pytest.mark.parametrize("package", ANALYTICS)
def test_packages_of_the_audit_lake_import_downwards(package: str) -> None:
    modules = list((ROOT / "analytics" / package).glob("*.py"))

    offenders = {
        module.name: wrong
        for module in modules
        if (wrong := imported_parts(module, "analytics") - ANALYTICS[package] - {package})
    }

    assert len(modules) > 2
    assert offenders == {}


def test_the_audit_lake_is_nothing_but_its_packages() -> None:
    """A module at the root, or an unnamed package, would escape the rule above."""
    root = ROOT / "analytics"

    assert [module.name for module in root.glob("*.py")] == ["__init__.py"]
    assert {module.parent.name for module in root.glob("*/*.py")} == set(ANALYTICS)


def test_one_module_sends_work_to_threads() -> None:
    """The event loop never waits on a disk."""
    users = [
        str(module.relative_to(ROOT))
        for module in (ROOT / "service").rglob("*.py")
        if re.search(r"\b(to_thread|run_in_executor|ThreadPoolExecutor)\(", module.read_text())
    ]

    assert users == ["service/core/threads.py"]


EXTRA_PACKAGES = ("asyncpg", "botocore", "deltalake", "obstore", "psycopg", "pyiceberg")
"""What extras install: `make demo` and a plain `pip install` have none of it."""

WITHOUT_EXTRAS = f"""
import sys
from importlib import import_module
from pkgutil import walk_packages
sys.modules |= dict.fromkeys({EXTRA_PACKAGES!r})
import service.app.server
import service.cli
for module in walk_packages(service.cli.__path__, "service.cli."):
    import_module(module.name)
"""


def test_service_and_commands_need_no_extra() -> None:
    """Tests have all extras installed, so no other test meets such an import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [need for name in ("postgres", "lake", "s3") for need in extras[name]]
    command = [sys.executable, "-c", WITHOUT_EXTRAS]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert {re.split(r"\W", need)[0] for need in needs} <= set(EXTRA_PACKAGES)
    assert ran.returncode == 0, ran.stderr
