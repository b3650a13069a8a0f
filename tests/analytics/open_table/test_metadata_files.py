"""Metadata on this machine's disk survives a power loss before a catalog names it."""

import pytest

from analytics.open_table.metadata_files import LocalMetadataFiles, file_uri


def test_new_files_are_synced_with_their_names(tmp_path, file_steps):
    paths = [tmp_path / f"{number}.avro" for number in range(20)]
    for path in paths:
        path.write_bytes(b"content")

    LocalMetadataFiles(tmp_path).sync(map(file_uri, paths))

    named = file_steps.index("fsync", tmp_path)
    assert all(file_steps.index("fsync", path) < named for path in paths)
    assert {file_steps.synced_bytes[path] for path in paths} == {7}


def test_a_file_that_is_not_there_is_reported(tmp_path):
    missing = tmp_path / "missing" / "1.avro"

    with pytest.raises(FileNotFoundError):
        LocalMetadataFiles(tmp_path).sync([file_uri(missing)])
