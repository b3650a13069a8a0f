"""Folders that are filled under a temporary name and renamed when complete."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.audit.backup.refusals import BackupInside, NoRoom


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, accessible to its owner only: `.<name>.<random>.part`.

    It is removed at the end of the block unless it was renamed; a killed process leaves it behind.
    It is on the same file system as `target`, so that the rename is atomic.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(mode=0o700)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_apart(backup: Path, data_dir: Path) -> None:
    """Raise BackupInside if one of the folders contains the other."""
    backup, data_dir = backup.resolve(), data_dir.resolve()
    if backup.is_relative_to(data_dir) or data_dir.is_relative_to(backup):
        raise BackupInside(value=str(backup))


def check_room(part: Path, size: int) -> None:
    """Raise NoRoom if `part` has less than `size` bytes free; checked before a long copy."""
    free = shutil.disk_usage(part).free
    if free < size:
        raise NoRoom(value=str(part.parent), needed=str(size), free=str(free))
