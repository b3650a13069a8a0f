"""What makes a whole run cheaper, and no test any different."""

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
_MEMORY_BYTES_MIN: Final = 4 * 1024**3
_GARBAGE: Final = (50_000, 20, 20)
"""How many objects may be made before a collection: a world is some 20,000."""


def keep_bytecode() -> None:
    """Write compiled modules, even if the environment says not to.

    Otherwise each worker of each run rewrites the assertions of all test modules, which takes
    longer than to import them.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def use_memory_for_files() -> None:
    """Have `tmp_path` in memory when there is room: most tests write a database and sync it."""
    named = "PYTEST_DEBUG_TEMPROOT"
    if named in os.environ or not _MEMORY.is_dir():
        return
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN:
        os.environ[named] = str(_MEMORY)


def load_without_collections() -> None:
    """Look for no garbage until the modules are loaded: nearly all of what they make stays."""
    gc.disable()


def collect_garbage_less_often() -> None:
    """Leave what was imported out of garbage collections, and make them rarer.

    An app is a web of cycles: with Python's defaults a fifth of a run was spent looking for them.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_GARBAGE)
