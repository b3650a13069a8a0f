"""The disk of the cache fails: it is full, shared, removed or read-only. Rows are right or a fault.

The disks are real, small ones; mounting them takes root, which the machine of CI has.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from analytics.model.errors import StoreFault, StoreUnreachable
from analytics.storage.bucket_place import parse_place
from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.file_copy import sha256_of
from analytics.storage.objects import Objects
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_metadata import Segment
from analytics.storage.segment_writer import write_segment
from tests.analytics.samples import sample_row, table_of
from tests.budgets import only_full
from tests.conftest import START

SEGMENTS = 8
DISK_BYTES = 600_000

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")


def write(folder: Path, number: int) -> Segment:
    """Some 50 KB that do not compress."""
    rows = [sample_row(START, payload=os.urandom(2_000).hex()) for _ in range(25)]
    table = table_of(rows, 1 + 25 * number)
    return write_segment(folder, "org_a", START.date(), f"seg_{number:016d}", table)


def open_store(folder: Path, bucket) -> S3Segments:
    """With far more room by its setting than there is."""
    cache = CacheFolder(folder, 2**30, 2.0, CacheObserver())
    objects = Objects(parse_place(bucket.url), bucket.server.endpoint, 4.0)
    return S3Segments(objects, cache, CacheObserver())


@pytest.fixture
def stored(tmp_path, bucket) -> list[Segment]:
    """Segments in the bucket, more than a small disk holds."""
    (tmp_path / "first").mkdir()
    with closing(open_store(tmp_path / "first", bucket)) as store:
        segments = [store.put(lambda folder, n=n: write(folder, n)) for n in range(SEGMENTS)]
    assert sum(segment.size for segment in segments) > DISK_BYTES / 2
    return segments


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    mount(*arguments, str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path, stored) -> Iterator[Path]:
    """A disk with room for the half of the segments."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = sum(segment.size + segment.index_size for segment in stored) // 2
    with mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "countersign-test"):
        yield folder


def assert_readable(store: S3Segments, segment: Segment) -> None:
    with store.local([segment]):
        assert sha256_of(segment.path(store.root)) == segment.sha256


@is_root
def test_a_disk_that_is_smaller_than_the_setting_says_holds_what_it_can(disk, stored, bucket):
    with closing(open_store(disk, bucket)) as store:
        for segment in [*stored, *stored]:
            assert_readable(store, segment)
        one_more = store.put(lambda folder: write(folder, SEGMENTS))
        assert_readable(store, one_more)


@is_root
@only_full
def test_more_than_the_disk_holds_at_once_is_a_fault_and_no_less_afterwards(disk, stored, bucket):
    """All of them are in use together: none can be dropped."""
    with closing(open_store(disk, bucket)) as store:
        with pytest.raises(StoreUnreachable, match="No space left"), store.local(stored):
            pass  # pragma: no cover - not reached
        for segment in stored:
            assert_readable(store, segment)


@is_root
@only_full
def test_a_disk_that_others_have_filled_takes_no_copy_and_recovers(disk, stored, bucket):
    with closing(open_store(disk, bucket)) as store:
        keys = bucket.list_keys()
        with pytest.raises(OSError, match="No space left"):
            (disk / "ballast").write_bytes(b"x" * 10**7)
        with pytest.raises(StoreFault), store.local(stored[:1]):
            pass  # pragma: no cover - not reached
        with pytest.raises(OSError, match="No space left"):
            store.put(lambda folder: write(folder, SEGMENTS))
        assert bucket.list_keys() == keys

        (disk / "ballast").unlink()
        assert_readable(store, stored[0])
        store.put(lambda folder: write(folder, SEGMENTS))


@is_root
@only_full
def test_two_processes_share_a_disk_that_is_too_small(disk, stored, bucket):
    def read(store: S3Segments) -> int:
        for segment in stored * 6:
            assert_readable(store, segment)
        return len(stored)

    with (
        closing(open_store(disk, bucket)) as first,
        closing(open_store(disk, bucket)) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        assert list(threads.map(read, [first, second])) == [SEGMENTS] * 2


@is_root
def test_a_folder_that_is_read_only_reads_copies_and_recovers(tmp_path, stored, bucket):
    folder = tmp_path / "cache"
    folder.mkdir()
    with closing(open_store(folder, bucket)) as store:
        assert_readable(store, stored[0])
        keys = bucket.list_keys()
        with mounted(folder, "--bind", str(folder)):
            mount("-o", "remount,ro,bind", str(folder))
            assert_readable(store, stored[0])
            with pytest.raises(StoreUnreachable, match="Read-only"), store.local(stored[1:]):
                pass  # pragma: no cover - not reached
            with pytest.raises(OSError, match="Read-only"):
                store.put(lambda folder: write(folder, SEGMENTS))
        assert bucket.list_keys() == keys
        for segment in stored:
            assert_readable(store, segment)


@pytest.mark.parametrize(
    "what",
    [
        ".cache",
        pytest.param("", marks=only_full),
        pytest.param(".cache/locks", marks=only_full),
        pytest.param("tenant=org_a", marks=only_full),
    ],
)
def test_a_folder_that_is_removed_while_it_is_used_is_filled_again(tmp_path, stored, bucket, what):
    folder = tmp_path / "cache"
    folder.mkdir()
    with closing(open_store(folder, bucket)) as store:
        for segment in stored:
            assert_readable(store, segment)
        removed = folder / what
        shutil.rmtree(removed) if removed.is_dir() else removed.unlink()

        for segment in stored:
            assert_readable(store, segment)
        assert_readable(store, store.put(lambda folder: write(folder, SEGMENTS)))


@pytest.mark.parametrize("what", [".cache", pytest.param("", marks=only_full)])
def test_after_the_folder_was_removed_processes_still_see_what_others_use(
    tmp_path, stored, bucket, what
):
    folder = tmp_path / "cache"
    folder.mkdir()
    with closing(open_store(folder, bucket)) as store:
        assert_readable(store, stored[0])
        shutil.rmtree(folder / what)
        with store.local(stored[:1]):
            with closing(open_store(folder, bucket)) as other:
                assert other.drop_copies(other.copies(), ()) == 0
            assert stored[0].path(folder).exists()
