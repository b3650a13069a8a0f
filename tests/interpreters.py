"""Processes of tests: each is a fresh Python interpreter, as a shell starts one."""

import subprocess
import sys
from typing import Any

from service.settings import REPOSITORY


def start_module(module: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """`python -m module arguments`, under way. Options are those of `subprocess.Popen`."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, **options)


def run_module(module: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`python -m module arguments`, ended. Options are those of `subprocess.run`."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False, **options)
