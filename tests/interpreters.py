"""Processes of tests: each runs one module, as `python -m module` does in a shell."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

from service.core.settings import REPOSITORY
from tests.forks import ForkedProcess
from tests.tiers import IS_FULL

Process: TypeAlias = subprocess.Popen[Any] | ForkedProcess


def find_program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else shutil.which(name)


def start_module(module: str, *arguments: str, is_fresh: bool = IS_FULL, **options: Any) -> Process:
    """`python -m module arguments`, under way. Options are those of `subprocess.Popen`.

    One that `is_fresh` is a new interpreter, and any other one a fork that has loaded everything.
    """
    if is_fresh:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=REPOSITORY, **options)
    return ForkedProcess([module, *arguments], cwd=REPOSITORY, **options)


def run_module(
    module: str,
    *arguments: str,
    input: Any = None,  # noqa: A002 - as `subprocess.run` calls it
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`python -m module arguments`, ended. Options are those of `start_module`."""
    pipe = subprocess.PIPE
    stdin = None if input is None else pipe
    with start_module(
        module, *arguments, stdin=stdin, stdout=pipe, stderr=pipe, **options
    ) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
