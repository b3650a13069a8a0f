"""A file is read whole before it is used, once for each state that it is in."""

import os
import random
import shutil
from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.integrity import FaultKind, SeqSet, check_segment, verify_stored
from analytics.storage.segment_metadata import VERSION_KEY
from analytics.storage.segment_reader import OtherSegment, open_segment
from analytics.storage.segment_store import LocalFolder
from analytics.storage.segment_writer import write_segment
from analytics.storage.verified_files import (
    COPY_MODE,
    DamagedFile,
    VerifiedFiles,
    WrongDigest,
    no_wait,
    rows_file,
    verify_file,
)
from tests.analytics.samples import DAY, NOON, TENANT, sample_row, sealed, table_of

ROWS = [sample_row(NOON + timedelta(seconds=second)) for second in range(10)]


@pytest.fixture
def segment(tmp_path):
    return sealed(tmp_path, "seg_1", ROWS)


@pytest.fixture
def verified():
    files = VerifiedFiles()
    yield files
    files.close()


class Reads:
    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, size: int) -> None:
        self.bytes += size


def flip(path, place: int = 100) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def read_by(verified, *files) -> int:
    reads = Reads()
    verified.check(files, reads)
    return reads.bytes


def test_a_file_is_read_once(tmp_path, segment, verified):
    file = rows_file(tmp_path, segment)

    assert read_by(verified, file) == segment.size
    assert read_by(verified, file) == 0


def test_several_files_are_all_read(tmp_path, segment, verified):
    segments = [segment, *(sealed(tmp_path, f"seg_{n}", ROWS) for n in range(2, 20))]
    files = [rows_file(tmp_path, one) for one in segments]

    assert read_by(verified, *files) == sum(one.size for one in segments)
    flip(files[11].path)
    with pytest.raises(WrongDigest, match=segments[11].segment_id):
        verified.check(files)
    assert read_by(verified, *files[:11], *files[12:]) == 0


def test_what_changes_while_the_process_runs_is_found(tmp_path, segment, verified):
    """Even if the modification time is set back: the change time cannot be."""
    file = rows_file(tmp_path, segment)
    verified.check([file])
    before = file.path.stat()
    flip(file.path)
    os.utime(file.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(WrongDigest, match="audit restore-segment"):
        verified.check([file])


def test_a_file_put_in_place_of_another_is_found(tmp_path, segment, verified):
    file = rows_file(tmp_path, segment)
    verified.check([file])
    content = bytearray(file.path.read_bytes())
    content[100] ^= 1
    other = tmp_path / "other"
    other.write_bytes(content)
    other.rename(file.path)

    with pytest.raises(WrongDigest):
        verified.check([file])


def test_a_repaired_file_is_used_again(tmp_path, segment, verified):
    file = rows_file(tmp_path, segment)
    flip(file.path)
    with pytest.raises(DamagedFile):
        verified.check([file])
    flip(file.path)

    assert read_by(verified, file) == segment.size


def test_a_copy_that_is_marked_as_used_is_not_read_again(tmp_path, segment, verified):
    """Processes mark its use in its times, which changes its change time."""
    file = rows_file(tmp_path, segment)
    file.path.chmod(COPY_MODE)
    verified.check([file])
    os.utime(file.path, ns=(1, file.path.stat().st_mtime_ns))

    assert read_by(verified, file) == 0


@pytest.mark.parametrize("keeps_time", [True, False], ids=["another file", "another time"])
def test_a_copy_with_other_bytes_is_found(tmp_path, segment, verified, keeps_time):
    file = rows_file(tmp_path, segment)
    file.path.chmod(COPY_MODE)
    verified.check([file])
    written_at = file.path.stat().st_mtime_ns
    if keeps_time:
        shutil.copy2(file.path, tmp_path / "other")
        (tmp_path / "other").rename(file.path)
    file.path.chmod(0o600)
    flip(file.path)
    file.path.chmod(COPY_MODE)
    os.utime(file.path, ns=(1, written_at + (not keeps_time)))

    with pytest.raises(WrongDigest):
        verified.check([file])


def test_a_file_that_two_want_is_read_once(tmp_path, segment, verified):
    file = rows_file(tmp_path, segment)

    assert read_by(verified, file, file) == segment.size


def test_once_closed_nothing_is_taken_for_damaged(tmp_path, segment, verified):
    files = [rows_file(tmp_path, one) for one in (segment, sealed(tmp_path, "seg_2", ROWS))]
    verified.close()

    with pytest.raises(StoreUnreachable, match="closed"):
        verified.check(files)


def test_only_so_many_files_are_remembered(tmp_path, segment):
    verified = VerifiedFiles(files_max=1)
    files = [rows_file(tmp_path, one) for one in (segment, sealed(tmp_path, "seg_2", ROWS))]
    for file in files:
        verified.check([file])

    assert read_by(verified, files[0]) == segment.size
    verified.close()


def test_without_a_digest_the_size_is_compared(tmp_path, segment, verified):
    """Old segments have none."""
    known = replace(segment, sha256="")
    verified.check([rows_file(tmp_path, known)])

    with pytest.raises(DamagedFile, match="bytes instead of"):
        verified.check([rows_file(tmp_path, replace(known, size=known.size + 1))])


def test_a_missing_file_is_a_fault(tmp_path, segment, verified):
    segment.path(tmp_path).unlink()

    with pytest.raises(StoreFault, match=segment.segment_id):
        verified.check([rows_file(tmp_path, segment)])


def test_a_file_that_cannot_be_looked_at_is_a_fault_that_names_it(tmp_path, segment, verified):
    path = segment.path(tmp_path)
    verified.check([rows_file(tmp_path, segment)])
    path.unlink()
    path.symlink_to(path.name)  # a loop

    with pytest.raises(StoreFault, match=segment.segment_id):
        verified.check([rows_file(tmp_path, segment)])


def test_reading_can_be_ended(tmp_path, segment, verified):
    def stop(size: int) -> None:
        raise StoreFault("stopped")

    with pytest.raises(StoreFault, match="stopped"):
        verified.check([rows_file(tmp_path, segment)], stop)


def test_a_finding_names_the_damaged_file(tmp_path, segment):
    reads = Reads()
    assert verify_stored(LocalFolder(tmp_path), segment, reads) is None
    assert reads.bytes == segment.size

    flip(segment.path(tmp_path))
    damaged = verify_stored(LocalFolder(tmp_path), segment, no_wait)
    segment.path(tmp_path).unlink()
    missing = verify_stored(LocalFolder(tmp_path), segment, no_wait)

    assert damaged is not None
    assert missing is not None
    assert (damaged.kind, missing.kind) == (FaultKind.WRONG_SHA256, FaultKind.MISSING_FILE)
    assert (damaged.tenant_id, damaged.day, damaged.segment) == (TENANT, DAY, segment.segment_id)


def test_the_identity_is_that_of_the_bytes_that_were_read(tmp_path, segment, verified):
    file = rows_file(tmp_path, segment)

    def touch(size: int) -> None:
        os.utime(file.path, ns=(1, 1))

    verified.check([file], touch)

    assert read_by(verified, file) == segment.size
    assert verify_file(file)


def test_rows_of_a_folder_are_used_only_if_they_are_whole(tmp_path, segment):
    flip(segment.path(tmp_path))

    with pytest.raises(WrongDigest), LocalFolder(tmp_path).local([segment]):
        pytest.fail("the damaged file was used")


def test_what_is_damaged_while_it_is_used_is_a_fault_of_the_use(tmp_path, segment):
    """What was read in the block may be either."""
    with pytest.raises(WrongDigest), LocalFolder(tmp_path).local([segment]):
        flip(segment.path(tmp_path))


def test_a_page_that_changed_since_is_not_decoded(tmp_path, segment):
    """Pages have checksums of their own."""
    path = segment.path(tmp_path)
    whole, chance = path.read_bytes(), random.Random(20261124)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    # Behind the last page come indexes and the footer, and only the digest covers these.
    end = max(c.data_page_offset + c.total_compressed_size for c in columns)
    with open_segment(tmp_path, segment) as file:
        rows = file.rows(0)
    changed = 0
    for place in chance.sample(range(4, end), 200):
        content = bytearray(whole)
        content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        try:
            with open_segment(tmp_path, segment) as file:
                assert file.rows(0).equals(rows)
        except StoreFault:
            changed += 1

    assert changed > 100


def test_a_file_says_whose_it_is(tmp_path, segment):
    (tmp_path / "other").mkdir()
    for tenant, day, name in (
        ("org_other", DAY, "seg_1"),
        (TENANT, DAY - timedelta(days=1), "seg_1"),
        (TENANT, DAY, "seg_2"),
    ):
        moved = [sample_row(row.created_at - (DAY - day)) for row in ROWS]
        other = write_segment(tmp_path / "other", tenant, day, name, table_of(moved))
        mistaken = replace(segment, size=other.size, sha256="")
        shutil.copy(other.path(tmp_path / "other"), segment.path(tmp_path))

        with pytest.raises(OtherSegment), open_segment(tmp_path, mistaken):
            pytest.fail("it was opened")
        (finding,) = check_segment(tmp_path, mistaken, SeqSet(), lambda rows: None)
        assert finding.kind is FaultKind.MISPLACED_FILE


def test_a_file_from_before_says_nothing(tmp_path, segment):
    """Files of earlier versions name no owner; their digest was verified."""
    table = pq.read_table(segment.path(tmp_path), partitioning=None)
    table = table.replace_schema_metadata({VERSION_KEY: str(segment.schema_version)})
    pq.write_table(table, segment.path(tmp_path))

    with open_segment(tmp_path, segment) as file:
        assert file.rows(0).num_rows == len(ROWS)
