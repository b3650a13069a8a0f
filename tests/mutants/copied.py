"""A copy of the code whose tests can be run with changes, so that nothing else is touched."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from tests.mutants.modules import REPOSITORY

_PARTS: Final = ("analytics", "benchmarks", "data", "service", "templates", "tests")
_seconds: Final = itertools.count(1_000_000_000)

Reached = tuple[list[str], dict[str, tuple[float, list[str]]]]
"""Names of statements that all tests of a file reach; and each test's seconds and statements."""


class Copy:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in _PARTS:
            ignored = shutil.ignore_patterns("__pycache__", "local")
            shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
        shutil.copy(REPOSITORY / "pyproject.toml", folder)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("runner.py")), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={},
        )

    def write(self, path: str, code: str) -> None:
        _rewrite(self._folder / path, code)

    @contextmanager
    def with_code(self, path: str, code: str) -> Iterator[None]:
        before = (self._folder / path).read_text()
        self.write(path, code)
        try:
            yield
        finally:
            self.write(path, before)

    def run(
        self, *tests: str, only: list[str] | None = None, limit_s: float | None = None
    ) -> tuple[int, str]:
        """Run `tests`, or the ids `only` of them, in a process of its own that is killed in time.

        How pytest ended, and what it said.
        """
        code, said, _ = self._ask(tests=tests, only=only, limit_s=limit_s)
        return code, said

    def record(self, *tests: str) -> tuple[int, str, Reached]:
        """Run `tests` of marked code: how pytest ended, what it said, and what was reached."""
        code, said, reached = self._ask(tests=tests, is_recorded=True)
        return code, said, reached

    def _ask(self, **order: Any) -> Any:
        print(json.dumps(order), file=_there(self._process.stdin), flush=True)
        return json.loads(_there(self._process.stdout).readline())

    def close(self) -> None:
        _there(self._process.stdin).close()
        self._process.wait()
        _there(self._process.stdout).close()


def _rewrite(file: Path, code: str) -> None:
    """Write `code`, as of a second of its own: what is compiled is told apart by that."""
    file.write_text(code)
    second = next(_seconds)
    os.utime(file, (second, second))


def _there(pipe: TextIO | None) -> TextIO:
    assert pipe is not None
    return pipe
