"""File operations that survive power loss: a name or a byte counts once it is synced."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SYNCS_AT_ONCE: Final = 4
"""Threads that wait for the disk. What several of them ask for, it does in few steps."""


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


class NewFiles:
    """Files below the folder `root` that are written first, and get their names together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._targets: dict[Path, Path] = {}

    def add(self, target: Path) -> Path:
        """Where to write the file that will be `target`; its folder is made."""
        target.parent.mkdir(parents=True, exist_ok=True)
        pending = target.with_name(f".{target.name}.pending")
        self._targets[pending] = target
        return pending

    def publish(self) -> None:
        """Give the files their names. When this returns, contents and names are durable."""
        # Folders that were there, too: who made them may have died before the sync.
        folders = {
            folder
            for target in self._targets.values()
            for folder in target.parents
            if folder.is_relative_to(self.root)
        }
        with ThreadPoolExecutor(SYNCS_AT_ONCE, "sync") as threads:
            # All bytes before any name: otherwise power loss could leave a name with none of them.
            deque(threads.map(fsync, self._targets), maxlen=0)
            for pending, target in self._targets.items():
                pending.rename(target)  # within one folder, so readers meet all of it or none
            deque(threads.map(fsync, folders), maxlen=0)

    def discard(self) -> None:
        """Remove the files that have no name yet."""
        for pending in self._targets:
            pending.unlink(missing_ok=True)


@contextmanager
def new_files(root: Path) -> Iterator[NewFiles]:
    """The files that the block adds are durable at its end; if it fails, they are removed."""
    files = NewFiles(root)
    try:
        yield files
        files.publish()
    except BaseException:
        # Left on a full disk, they would keep the room that other writers need.
        files.discard()
        raise


def sync_folders(root: Path) -> None:
    """Make every name in and below the folder `root` durable."""
    for path in root.rglob("*"):
        if path.is_dir():
            fsync(path)
    fsync(root)


def write_with_mode(path: Path, content: bytes, mode: int) -> None:
    """Write the file `path`, made with permission bits `mode`, without a sync."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(content)


def write_synced(path: Path, content: bytes, mode: int) -> None:
    """Store `content` as `path`, whole or not at all, with permission bits `mode`."""
    pending = path.with_name(f".{path.name}.pending")
    try:
        write_with_mode(pending, content, mode)
        # Before the rename: otherwise power loss could leave the name with none of the bytes.
        fsync(pending)
    except BaseException:
        # Left on a full disk, it would keep the room that other writers need.
        pending.unlink(missing_ok=True)
        raise
    pending.replace(path)
    fsync(path.parent)
