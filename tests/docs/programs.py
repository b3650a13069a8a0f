"""The shell of a reader, in which `countersign` is a command."""

import shutil
import sys
from pathlib import Path
from typing import Final


def add_countersign(folder: Path) -> Path:
    """A folder below `folder` with the command `countersign`, to be put on the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    add_program(programs, "countersign", f'exec {sys.executable} -m service.cli.main "$@"')
    return programs


JQ: Final = """\
import json, sys
answer = json.load(sys.stdin)
value = answer.get("value") or answer.get("token")
sys.exit(f"jq: error: {answer['error']}") if value is None else print(value)
"""
"""What the lines for CI jobs ask of jq."""


def add_jq(programs: Path) -> None:
    """The command `jq`, which providers' machines have, but not every developer's."""
    if shutil.which("jq") is None:
        (script := programs / "jq.py").write_text(JQ)
        add_program(programs, "jq", f"exec {sys.executable} {script}")


def add_program(programs: Path, name: str, body: str) -> None:
    """The command `name` in the folder `programs`: a shell script."""
    command = programs / name
    command.write_text(f"#!/bin/sh\n{body}\n")
    command.chmod(0o755)
