"""Metadata on this machine's disk survives a power loss before a catalog names it."""

import pytest

from analytics.open_table.metadata_files import LocalMetadataFiles, file_uri
from tests.file_steps import file_steps

__all__ = ["file_steps"]


def test_new_files_are_synced_with_their_names(tmp_path, file_steps):
    """Each as a whole, and then the folder that they are in."""
    paths = [tmp_path / f"{number}.avro" for number in range(20)]

    LocalMetadataFiles(tmp_path).write_new([(file_uri(path), b"content") for path in paths])

    assert [path.read_bytes() for path in paths] == [b"content"] * 20
    named = file_steps.index("fsync", tmp_path)
    assert all(file_steps.index("fsync", path) < named for path in paths)
    assert {file_steps.synced_bytes[path] for path in paths} == {7}


def test_a_file_that_cannot_be_written_is_not_kept_quiet(tmp_path):
    """Whichever of those that are written at a time it is."""
    missing = tmp_path / "missing" / "1.avro"

    with pytest.raises(FileNotFoundError):
        LocalMetadataFiles(tmp_path).write_new([(file_uri(missing), b"")])
