"""A slower disk for one process: each sync of its database takes longer by a given time.

Fast local disks sync in a tenth of a millisecond and network volumes in one to ten. The delay is
added by a library that is loaded before libc, so that both engines are delayed in the same way:
the server process of PostgreSQL with its children, and the process of Countersign with SQLite.
"""

import subprocess
from pathlib import Path
from typing import Final

_COMPILER: Final = "gcc"
_SOURCE: Final = Path(__file__).with_name("slow_sync.c")


class NoCompiler(Exception):
    """gcc is not installed."""


def build(folder: Path) -> Path:
    """The library, compiled into `folder`, readable by every account. Raises NoCompiler."""
    library = folder / "slow_sync.so"
    try:
        subprocess.run(
            [_COMPILER, "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True
        )
    except FileNotFoundError as error:
        raise NoCompiler("gcc is not installed") from error
    library.chmod(0o755)
    return library


def environment(library: Path, below: Path, delay_us: int) -> dict[str, str]:
    """What a process is started with, so that syncs of files `below` take `delay_us` longer.

    `below` is the beginning of their paths: a folder, or a file and those named after it.
    """
    return {
        "LD_PRELOAD": str(library),
        "SLOW_SYNC_BELOW": str(below),
        "SLOW_SYNC_US": str(delay_us),
    }
