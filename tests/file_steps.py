"""A record of the steps files go through, for tests of what survives a power loss."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class FileSteps:
    """The file calls that were made, in order: (what, path as it was called then)."""

    steps: list[tuple[str, Path]] = field(default_factory=list)
    synced_bytes: dict[Path, int] = field(default_factory=dict)

    def index(self, what: str, path: Path) -> int:
        """Where in the order this step stands; fails if it was never taken."""
        assert (what, path) in self.steps, f"no {what} of {path} among {self.steps}"
        return self.steps.index((what, path))

    def made(self) -> list[Path]:
        """The directories that were created, in order."""
        return [path for what, path in self.steps if what == "mkdir"]


@pytest.fixture
def file_steps(monkeypatch: pytest.MonkeyPatch) -> FileSteps:
    """Records every fsync, rename, link and mkdir from here on; each still happens."""
    record = FileSteps()
    fsync, rename, replace, mkdir = os.fsync, Path.rename, Path.replace, Path.mkdir
    link = Path.hardlink_to

    def recorded_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        fsync(descriptor)
        record.steps.append(("fsync", path))
        record.synced_bytes[path] = path.stat().st_size

    def recorded_rename(self: Path, target: Path) -> Path:
        record.steps.append(("rename", target))
        return rename(self, target)

    def recorded_replace(self: Path, target: Path) -> Path:
        record.steps.append(("rename", target))
        return replace(self, target)

    def recorded_link(self: Path, target: Path) -> None:
        record.steps.append(("link", self))
        link(self, target)

    def recorded_mkdir(self: Path, *arguments: object, **options: object) -> None:
        was_there = self.exists()
        mkdir(self, *arguments, **options)
        if not was_there:
            record.steps.append(("mkdir", self))

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    monkeypatch.setattr(Path, "hardlink_to", recorded_link)
    monkeypatch.setattr(Path, "mkdir", recorded_mkdir)
    return record
