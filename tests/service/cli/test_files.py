"""Files that commands write: whole and durable under their name, or not there."""

import pytest

from service.cli.files import new_file


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_file_is_synced_before_it_gets_its_name_and_its_name_after(
    tmp_path, file_steps, is_forced
):
    """The originals may be deleted once the export is confirmed."""
    path = tmp_path / "rows.csv"
    with new_file(path, is_forced=is_forced) as file:
        file.write(b"content")

    (synced, part), (named, name), (name_synced, folder) = file_steps.steps
    assert (synced, name_synced) == ("fsync", "fsync")
    assert named == ("rename" if is_forced else "link")
    assert (part.parent, name, folder) == (tmp_path, path, tmp_path)
    assert file_steps.synced_bytes[part] == len(b"content")
