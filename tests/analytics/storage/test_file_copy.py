"""Copies: what arrives is what was read, durable, and for the owner's eyes alone."""

import errno
import hashlib
import resource
import stat

import pytest

from analytics.storage.file_copy import FileCopy, SourceFault, sha256_of
from analytics.storage.fsync import sync_folders

CONTENT = bytes(range(256)) * 40_000


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("is_link", [False, True])
def test_a_copy_knows_what_it_copied(tmp_path, source, is_link):
    copy = FileCopy(source, tmp_path / "a" / "b" / "copy", is_link=is_link)

    steps = list(copy)

    assert len(steps) > 2
    assert sum(steps) == copy.size == len(CONTENT)
    assert copy.sha256 == hashlib.sha256(CONTENT).hexdigest() == sha256_of(copy.target)
    assert copy.target.read_bytes() == CONTENT
    assert copy.target.samefile(source) == is_link


def test_a_copy_is_its_owners_and_durable(tmp_path, source, file_steps):
    source.chmod(0o644)
    list(FileCopy(source, tmp_path / "copy"))

    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert file_steps.synced_bytes[tmp_path / "copy"] == len(CONTENT)


@pytest.mark.parametrize("is_link", [False, True])
def test_nothing_is_replaced(tmp_path, source, is_link):
    """A file in the way means that two paths were mixed up."""
    (tmp_path / "copy").write_text("precious")

    with pytest.raises(FileExistsError):
        list(FileCopy(source, tmp_path / "copy", is_link=is_link))

    assert (tmp_path / "copy").read_text() == "precious"


def test_a_full_disk_is_an_error_and_no_shorter_copy(source):
    """/dev/full takes nothing; O_EXCL would refuse it, so the last step is taken alone."""
    copy = FileCopy(source, source)

    with pytest.raises(OSError, match="No space") as failed, open("/dev/full", "wb") as full:  # noqa: PTH123
        list(copy._read(full))

    assert failed.value.errno == errno.ENOSPC
    assert copy.sha256 == ""


@pytest.mark.parametrize("is_link", [False, True])
def test_a_source_that_is_not_there_is_told_from_a_target_that_takes_nothing(tmp_path, is_link):
    """Only the first is a reason to go on without the file."""
    with pytest.raises(SourceFault) as failed:
        list(FileCopy(tmp_path / "gone", tmp_path / "copy", is_link=is_link))

    assert (failed.value.errno, failed.value.filename) == (errno.ENOENT, str(tmp_path / "gone"))


def test_a_process_that_may_open_no_more_files_blames_none(tmp_path, source):
    """Otherwise each segment in turn would be left out of a backup."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    copy = FileCopy(source, tmp_path / "copy")
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files") as failed:
            list(copy._read(None))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert not isinstance(failed.value, SourceFault)


def test_every_folder_is_synced(tmp_path, file_steps):
    """A file below a directory whose name was lost is lost with it."""
    folders = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "c"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("")

    sync_folders(tmp_path)

    assert {path for what, path in file_steps.steps if what == "fsync"} == {tmp_path, *folders}
