"""File steps that survive power loss.

What counts is the order of the calls, recorded here: a test that kills the process proves
nothing about them, because the kernel keeps what the process wrote.
"""

import errno
import os
import stat

import pytest

from analytics.storage.fsync import fsync, mkdir_synced, write_synced


def test_fsync_reaches_files_and_directories(tmp_path, file_steps):
    """A file's bytes and a directory's names are separate things to sync."""
    file = tmp_path / "file"
    file.write_bytes(b"bytes")

    fsync(file)
    fsync(tmp_path)

    assert file_steps.steps == [("fsync", file), ("fsync", tmp_path)]


def test_each_created_directory_has_its_name_synced_in_its_parent(tmp_path, file_steps):
    """A synced file below a directory whose name was lost is lost with it."""
    target = tmp_path / "tenant=org_1" / "day=2026-03-04" / "deeper"

    mkdir_synced(target, within=tmp_path)

    assert file_steps.made() == [target.parent.parent, target.parent, target]
    for made in file_steps.made():
        assert file_steps.index("fsync", made.parent) > file_steps.index("mkdir", made)


def test_a_directory_that_is_there_is_synced_all_the_same(tmp_path, file_steps):
    """The process that created it may have died before the sync."""
    target = tmp_path / "tenant=org_1" / "day=2026-03-04"
    target.mkdir(parents=True)
    file_steps.steps.clear()

    mkdir_synced(target, within=tmp_path)

    assert file_steps.steps == [("fsync", tmp_path), ("fsync", target.parent)]


def test_a_directory_outside_its_root_is_not_made(tmp_path):
    with pytest.raises(ValueError, match="subpath"):
        mkdir_synced(tmp_path / "elsewhere", within=tmp_path / "root")

    assert list(tmp_path.iterdir()) == []


def test_a_file_is_synced_whole_then_renamed_then_its_name_is_synced(tmp_path, file_steps):
    """In any other order a crash could leave the name with half the bytes."""
    path = tmp_path / "secret"

    write_synced(path, b"0123456789", 0o600)

    pending = tmp_path / ".secret.pending"
    assert file_steps.synced_bytes[pending] == 10
    assert (
        file_steps.index("fsync", pending)
        < file_steps.index("rename", path)
        < file_steps.index("fsync", tmp_path)
    )
    assert path.read_bytes() == b"0123456789"


def test_a_secret_is_readable_by_its_owner_alone_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"an older and longer secret")

    write_synced(path, b"new", 0o600)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_a_file_that_could_not_be_written_whole_is_not_left_behind(tmp_path, monkeypatch):
    """On a full disk it would take room that others need."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_synced(path, b"new", 0o600)

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]
