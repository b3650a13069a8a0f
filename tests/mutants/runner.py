"""Runs tests over and over, each time in a process of its own that has the libraries loaded.

`python tests/mutants/runner.py FOLDER` reads lines of JSON, each an order about tests in FOLDER,
and answers each with `[exit code, output, reached]`. To load the libraries takes longer than most
of the tests; what is under test is reloaded each time, so that every change to it counts.
"""

import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

FAILED = 3  # as pytest says of an error of its own
# What is under test, and pytest's plugins, which it loads in a way of its own.
RELOADED = ("analytics", "benchmarks", "pytest_", "service", "tests")

# Without schemathesis, whose plugin takes longer to load than most of the tests take to run.
OPTIONS = (
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_asyncio.plugin",
    "-p",
    "pytest_timeout",
)


def _load_libraries() -> None:
    """Load what the tests load, and what is not under test.

    A fork finds out what that is. Nothing of it is looked at by collections of garbage later.
    """
    with tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            importlib.import_module("tests.conftest")
            names = [name for name in sys.modules if not name.startswith(RELOADED)]
            Path(answer.name).write_text(json.dumps(names))
            os._exit(0)
        os.waitpid(child, 0)
        for name in json.loads(answer.read()):
            with suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()


def _plugins(order: dict[str, Any], answer: Path) -> list[object]:
    """What else pytest needs; imported in the child, because it is a part of the copied tests."""
    from tests.mutants.plugins import Chosen, Recorder

    if order.get("is_recorded"):
        return [Recorder(answer)]
    return [Chosen(order["only"])] if order.get("only") else []


def _wait(child: int, limit_s: float | None) -> int:
    """How `child` ended, killed after `limit_s`; what it started ends with it."""
    handle = os.pidfd_open(child)
    select.select([handle], [], [], limit_s)
    os.close(handle)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def run(order: dict[str, Any]) -> tuple[int, str, Any]:
    """Run tests in a child of this process.

    How pytest ended, what it said, and what each test reached, if that is to be recorded.
    """
    with tempfile.TemporaryFile("w+") as said, tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                plugins = _plugins(order, Path(answer.name))
                code = pytest.main([*OPTIONS, *order["tests"]], plugins)
                sys.stdout.flush()
                os._exit(code)
            finally:
                traceback.print_exc()
                os._exit(FAILED)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)  # whichever of the two comes first
        code = _wait(child, order.get("limit_s"))
        said.seek(0)
        return code, said.read(), json.loads(answer.read() or "null")


def main(folder: str) -> None:
    """Obey until the orders end."""
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    sys.path[0] = folder  # in place of this file's own folder
    _load_libraries()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # without the complaints of libraries about what is still alive
