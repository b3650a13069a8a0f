"""File operations that survive power loss: a name or a byte counts once it is synced."""

import os
from pathlib import Path


def fsync(path: Path) -> None:
    """Flush what `path` (a file or a directory) holds to stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mkdir_synced(path: Path, *, within: Path) -> None:
    """Create `path` below `within`; every name on the way is durable before this returns.

    A directory that is already there is synced all the same: the process that made it may have died
    between the making and the sync.
    """
    for name in reversed([path, *path.parents][: len(path.relative_to(within).parts)]):
        name.mkdir(exist_ok=True)
        fsync(name.parent)


def sync_folders(root: Path) -> None:
    """Make every name in and below the folder `root` durable."""
    for path in root.rglob("*"):
        if path.is_dir():
            fsync(path)
    fsync(root)


def write_synced(path: Path, content: bytes, mode: int) -> None:
    """Store `content` as `path`, whole or not at all, with permission bits `mode`."""
    pending = path.with_name(f".{path.name}.pending")
    descriptor = os.open(pending, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            # Before the rename: otherwise power loss could leave the name with none of the bytes.
            os.fsync(file.fileno())
    except BaseException:
        # Left on a full disk, it would keep the room that other writers need.
        pending.unlink(missing_ok=True)
        raise
    pending.replace(path)
    fsync(path.parent)
