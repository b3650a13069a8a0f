"""Folders that are filled under another name, and get their own when they are whole."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.backup.refusals import BackupInside, NoRoom


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, for its owner alone: `.<name>.<random>.part`.

    It is removed when the block ends, unless it has been renamed by then; a process that is
    killed leaves it behind. What is to become `target` is so on its file system already.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir(mode=0o700)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_apart(backup: Path, data_dir: Path) -> None:
    """Raise BackupInside if one of the two would lie in the other."""
    backup, data_dir = backup.resolve(), data_dir.resolve()
    if backup.is_relative_to(data_dir) or data_dir.is_relative_to(backup):
        raise BackupInside(value=str(backup))


def check_room(part: Path, size: int) -> None:
    """Raise NoRoom now, and not when hours have been spent, unless `part` can take `size` bytes."""
    free = shutil.disk_usage(part).free
    if free < size:
        raise NoRoom(value=str(part.parent), needed=str(size), free=str(free))
