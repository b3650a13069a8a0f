"""The files in the audit folder, and when those that no catalog line names may go."""

import os

import pytest

from analytics.storage.audit_files import list_files, remove_orphans
from tests.analytics.samples import sample_row, sealed

CUTOFF = 1_800_000_000.0


def _written_at(path, seconds):
    os.utime(path, (seconds, seconds))
    return path


@pytest.fixture
def orphan(tmp_path):
    """A whole segment file from before the cutoff; its index is not there."""
    segment = sealed(tmp_path, "seg_old", [sample_row()])
    segment.index_path(tmp_path).unlink()
    return _written_at(segment.path(tmp_path), CUTOFF - 1)


@pytest.mark.parametrize(
    ("named", "age_s", "removed"),
    [(set(), -1, 1), ({"seg_old"}, -1, 0), (set(), 0, 0), (set(), 1, 0), (set(), 3600, 0)],
)
def test_an_old_file_that_the_catalog_does_not_name_is_removed(
    tmp_path, orphan, named, age_s, removed
):
    """A crash between rename and commit leaves one; a young one may be about to be committed."""
    _written_at(orphan, CUTOFF + age_s)

    assert remove_orphans(tmp_path, list_files(tmp_path), named, CUTOFF) == removed
    assert orphan.exists() is not bool(removed)


def test_an_unfinished_file_is_an_orphan_too(tmp_path, orphan):
    """A crash while writing leaves a .pending file."""
    pending = _written_at(orphan.rename(orphan.with_suffix(".pending")), CUTOFF - 1)

    assert remove_orphans(tmp_path, list_files(tmp_path), set(), CUTOFF) == 1
    assert not pending.exists()


def test_only_files_listed_before_the_catalog_was_read_can_go(tmp_path, orphan):
    """A segment committed in between would look like an orphan."""
    files = list_files(tmp_path)
    later = _written_at(sealed(tmp_path, "seg_new", [sample_row()]).path(tmp_path), CUTOFF - 1)

    assert remove_orphans(tmp_path, files, {"seg_old"}, CUTOFF) == 0
    assert later.exists()


def test_a_file_that_is_gone_already_does_not_stop_the_rest(tmp_path, orphan):
    """Another process under another lease may have been quicker."""
    other = _written_at(sealed(tmp_path, "seg_b", [sample_row()]).path(tmp_path), CUTOFF - 1)
    files = [orphan, other]
    orphan.unlink()

    assert remove_orphans(tmp_path, files, set(), CUTOFF) == 1
    assert not other.exists()


def test_an_index_goes_with_its_segment(tmp_path):
    segment = sealed(tmp_path, "seg_old", [sample_row()])
    index = _written_at(segment.index_path(tmp_path), CUTOFF - 1)
    _written_at(segment.path(tmp_path), CUTOFF - 1)

    assert remove_orphans(tmp_path, list_files(tmp_path), {"seg_old"}, CUTOFF) == 0
    assert remove_orphans(tmp_path, list_files(tmp_path), set(), CUTOFF) == 2
    assert not index.exists()


def test_an_unfinished_index_of_a_known_segment_is_removed(tmp_path):
    """A rebuild that was killed leaves it; the next one writes it again."""
    segment = sealed(tmp_path, "seg_old", [sample_row()])
    index = segment.index_path(tmp_path)
    pending = _written_at(index.rename(index.with_name(f".{index.name}.pending")), CUTOFF - 1)

    assert remove_orphans(tmp_path, list_files(tmp_path), {"seg_old"}, CUTOFF) == 1
    assert not pending.exists()
    assert segment.path(tmp_path).exists()


def test_what_is_no_segment_of_its_place_stays_however_old(tmp_path, orphan):
    foreign = [
        tmp_path / "seg_a.parquet",
        orphan.parent.parent / "seg_b.parquet",
        orphan.parent / "below" / "seg_c.parquet",
        orphan.with_suffix(".txt"),
        tmp_path / "tenant=org_x" / "days" / "seg_d.parquet",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        _written_at(path, CUTOFF - 1)

    assert remove_orphans(tmp_path, list_files(tmp_path), {"seg_old"}, CUTOFF) == 0
    assert all(path.exists() for path in [orphan, *foreign])
