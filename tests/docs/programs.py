"""The shell of a reader, in which `countersign` is a command."""

import sys
from pathlib import Path


def add_countersign(folder: Path) -> Path:
    """A folder below `folder` with the command `countersign`, to be put on the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    add_program(programs, "countersign", f'exec {sys.executable} -m service.cli.main "$@"')
    return programs


def add_program(programs: Path, name: str, body: str) -> None:
    """The command `name` in the folder `programs`: a shell script."""
    command = programs / name
    command.write_text(f"#!/bin/sh\n{body}\n")
    command.chmod(0o755)
