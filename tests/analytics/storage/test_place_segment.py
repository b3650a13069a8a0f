"""A restored segment is in its place whole and durably, or not at all."""

from pathlib import Path

import pytest

from analytics.model.errors import StoreFault
from analytics.storage.audit_files import Role, role_of
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import place_segment, write_segment
from tests.analytics.samples import sample_row, table_of
from tests.conftest import START

ORG = "org_acme"


@pytest.fixture
def segment(tmp_path) -> Segment:
    """Written elsewhere, as in a backup."""
    (tmp_path / "backup").mkdir()
    rows = table_of([sample_row(START)])
    return write_segment(tmp_path / "backup", ORG, START.date(), "seg_a", rows)


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "audit"
    folder.mkdir()
    return folder


def test_a_restored_file_is_durable_before_and_after_it_has_its_name(
    tmp_path, root, segment, file_steps
):
    """Its bytes, then its name; and the names of its folders."""
    place_segment(root, segment, segment.path(tmp_path / "backup"))

    target = segment.path(root)
    (pending,) = {
        path for what, path in file_steps.steps if what == "fsync" and path.suffix == ".pending"
    }
    assert file_steps.synced_bytes[pending] == segment.size
    renamed = file_steps.index("rename", target)
    assert file_steps.index("fsync", pending) < renamed
    assert ("fsync", target.parent) in file_steps.steps[renamed:]
    for folder in file_steps.made():
        assert ("fsync", folder.parent) in file_steps.steps
    assert target.read_bytes() == segment.path(tmp_path / "backup").read_bytes()


def test_a_damaged_file_is_replaced_at_once(tmp_path, root, segment):
    """No reader finds it missing, and nothing else is left."""
    segment.path(root).parent.mkdir(parents=True)
    segment.path(root).write_bytes(b"damaged")

    place_segment(root, segment, segment.path(tmp_path / "backup"))

    assert [path.name for path in segment.path(root).parent.iterdir()] == ["seg_a.parquet"]


def test_a_copy_that_changed_meanwhile_is_not_put_in_place(tmp_path, root, segment):
    """It was verified before; the bytes that are in place are verified as well."""
    source = segment.path(tmp_path / "backup")
    source.write_bytes(source.read_bytes()[:-1] + b"?")
    segment.path(root).parent.mkdir(parents=True)
    segment.path(root).write_bytes(b"as it was")

    with pytest.raises(StoreFault, match="SHA-256"):
        place_segment(root, segment, source)

    assert segment.path(root).read_bytes() == b"as it was"
    assert len(list(segment.path(root).parent.iterdir())) == 1


def test_what_a_crash_leaves_is_swept(root, segment):
    """Unlike other files beside a segment with its name."""
    left = segment.path(root).with_name("restored-0123456789abcdef.pending")

    role = role_of(root, left, {"seg_a": (ORG, segment.day)})

    assert role is Role.UNFINISHED
