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
from typing import Final, TextIO

from tests.mutants.modules import REPOSITORY

_PARTS: Final = ("analytics", "benchmarks", "data", "service", "templates", "tests")
_seconds: Final = itertools.count(1_000_000_000)


class Copy:
    """The code and its tests in `folder`, without what a service has written, and a runner."""

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

    @contextmanager
    def with_code(self, path: str, code: str) -> Iterator[None]:
        """The file `path` has this `code` within."""
        file = self._folder / path
        before = file.read_text()
        _rewrite(file, code)
        try:
            yield
        finally:
            _rewrite(file, before)

    def run(self, *tests: str) -> tuple[int, str]:
        """Run `tests`, each run in a process of its own: how pytest ended, and what it said."""
        print(json.dumps(tests), file=_there(self._process.stdin), flush=True)
        code, said = json.loads(_there(self._process.stdout).readline())
        return code, said

    def close(self) -> None:
        """End the runner."""
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
