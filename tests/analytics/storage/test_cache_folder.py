"""A folder of copies that several processes share: what it keeps, drops and never drops."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.file_copy import sha256_of
from analytics.storage.layout import OWN_FOLDER
from analytics.storage.slot_locks import LockTimeout, SlotLocks, slot_of
from analytics.storage.verified_files import COPY_MODE, ExpectedFile

REPOSITORY = Path(__file__).parents[3]
SIZE = 1_000
BOUND = 5 * SIZE
WAIT_S = 0.05


def opened(root: Path) -> CacheFolder:
    return CacheFolder(root, BOUND, WAIT_S, CacheObserver())


@pytest.fixture
def cache(tmp_path) -> Iterator[CacheFolder]:
    folder = opened(tmp_path)
    yield folder
    folder.close()


@pytest.fixture
def other(tmp_path, cache) -> Iterator[CacheFolder]:
    """The same folder, as another process has it: locks are of open files."""
    folder = opened(tmp_path)
    yield folder
    folder.close()


def path_of(cache: CacheFolder, number: int, tenant: str = "org_a") -> Path:
    return (
        cache.root / f"tenant={tenant}" / f"day=2026-03-{number + 1:02}" / f"seg_{number}.parquet"
    )


def add(cache: CacheFolder, number: int, tenant: str = "org_a") -> Path:
    """A copy that was last used later than those before it."""
    target = path_of(cache, number, tenant)
    with cache.work_folder() as folder:
        source = folder / target.name
        source.write_bytes(bytes([number]) * SIZE)
        cache.add(source, target)
    os.utime(target, ns=(time.time_ns() + (number - 100) * 10**9, target.stat().st_mtime_ns))
    return target


def held(cache: CacheFolder) -> set[int]:
    return {int(path.stem.removeprefix("seg_")) for path in cache.root.glob("tenant=*/day=*/*")}


def test_the_least_recently_used_copies_make_room(cache):
    for number in range(5):
        add(cache, number)
    assert cache.holds(ExpectedFile(path_of(cache, 0), SIZE, ""))  # used again just now

    add(cache, 5)

    # A little more than there must be, so that not each new copy has to drop one.
    assert held(cache) == {0, 3, 4, 5}
    assert not path_of(cache, 1).parent.exists()


def test_the_copies_of_one_organisation_leave_those_of_another(cache):
    add(cache, 0, "org_b")
    for number in range(1, 12):
        add(cache, number)

    assert held(cache) == {0, 9, 10, 11}


def test_a_copy_in_use_is_not_dropped(cache, other):
    for number in range(5):
        add(cache, number)

    with cache.pinned(["seg_0"]), other.pinned(["seg_1"]):
        for number in range(5, 9):
            add(cache, number)
            add(other, number + 10)
        assert {0, 1} <= held(cache)

    add(cache, 30)
    assert not {0, 1} & held(cache)


def test_two_processes_keep_one_bound(cache, other):
    for number in range(20):
        add(cache if number % 2 else other, number)
        assert len(held(cache)) * SIZE <= BOUND


def test_what_a_killed_process_did_not_count_is_found(cache, tmp_path):
    for number in range(5):
        add(cache, number)
    (tmp_path / OWN_FOLDER / "locks").unlink()

    again = opened(tmp_path)
    try:
        add(again, 5)
        assert len(held(again)) * SIZE <= BOUND
    finally:
        again.close()


def test_copies_that_two_processes_drop_are_counted_once(cache, other):
    for number in range(4):
        add(cache, number)
    listed = sorted(cache.copies(), key=lambda copy: copy.path)[:2]

    assert (cache.drop(listed), other.drop(listed)) == (2, 0)
    assert cache.used_bytes() == 2 * SIZE


def test_files_that_are_no_copies_are_never_dropped(cache):
    own = path_of(cache, 0)
    own.parent.mkdir(parents=True)
    own.write_bytes(b"x" * 3 * BOUND)

    for number in range(1, 9):
        add(cache, number)
    cache.drop_to(0)

    assert held(cache) == {0}
    assert not cache.is_copy(own)
    cache.keep(own)
    assert own.stat().st_mode & 0o777 == COPY_MODE
    cache.drop_to(0)
    assert held(cache) == set()


def test_a_copy_of_another_size_is_not_taken_for_whole(cache):
    path = add(cache, 1)

    assert cache.holds(ExpectedFile(path, SIZE, sha256_of(path)))
    assert not cache.holds(ExpectedFile(path, SIZE + 1, sha256_of(path)))


def test_copies_are_compared_before_they_are_used(cache, other):
    """They are not synced: after a power loss they may have other bytes."""
    good, bad = (
        ExpectedFile(path, SIZE, sha256_of(path)) for path in (add(cache, 1), add(cache, 2))
    )
    bad.path.chmod(0o600)
    bad.path.write_bytes(b"?" * SIZE)
    bad.path.chmod(COPY_MODE)

    assert not other.holds(bad)
    assert other.holds(good)
    assert {copy.path for copy in other.copies()} == {good.path, bad.path}


def test_a_use_leaves_the_time_of_writing(cache):
    """DuckDB caches what it read of a file as long as that stays."""
    path = add(cache, 1)
    written_ns = path.stat().st_mtime_ns

    assert cache.holds(ExpectedFile(path, SIZE, ""))

    assert path.stat().st_mtime_ns == written_ns
    assert path.stat().st_atime_ns > 10**9


KILLED = """
import os, signal, sys
from pathlib import Path
from analytics.storage.cache_folder import CacheFolder, CacheObserver
cache = CacheFolder(Path(sys.argv[1]), 1_000, 0.05, CacheObserver())
with cache.work_folder() as folder:
    (folder / "seg_1.pending").write_bytes(b"PAR1")
    (folder / "seg_1.index").write_bytes(b"CSIX")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_a_killed_process_left_unfinished_is_gone_with_the_next_start(tmp_path, cache):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=REPOSITORY, check=False)
    with cache.work_folder() as running:
        (running / "seg_2.index").write_bytes(b"CSIX")
        own = tmp_path / OWN_FOLDER
        unfinished = {path.name for path in own.rglob("seg_*")}

        opened(tmp_path).close()

        assert unfinished == {"seg_1.pending", "seg_1.index", "seg_2.index"}
        assert {path.name for path in own.rglob("seg_*")} == {"seg_2.index"}


def test_a_folder_that_is_made_just_now_is_not_taken_for_one_that_was_left(tmp_path, cache):
    own = tmp_path / OWN_FOLDER
    made, left = own / "new-0", own / "new-1"
    made.mkdir()
    left.mkdir()
    os.utime(left, (0, 0))

    opened(tmp_path).close()

    assert made.exists()
    assert not left.exists()


def test_a_slot_is_exclusive_only_while_it_is_not_shared(tmp_path):
    first, second = (SlotLocks(tmp_path / "locks", WAIT_S) for _ in range(2))
    slot = slot_of("seg_1")
    with first.shared([slot]):
        for locks in (first, second):
            with locks.unused(slot) as is_free:
                assert not is_free
    with second.unused(slot) as is_free:
        assert is_free
        with pytest.raises(LockTimeout), first.shared([slot]):
            pass
    with first.shared([slot, slot_of("seg_2")]), second.shared([slot]):
        pass
    first.close()
    second.close()


def test_threads_that_find_the_disk_full_make_room_once(tmp_path):
    """All fetches of a query meet the full disk at once."""
    cache = CacheFolder(tmp_path, BOUND * 10, 30.0, CacheObserver())
    for number in range(16):
        add(cache, number)
    together = threading.Barrier(8)

    def fetch() -> None:
        failures = [errno.ENOSPC]

        def work() -> None:
            if failures:
                together.wait()
                raise OSError(failures.pop(), "no space left")

        cache.with_room(work)

    with ThreadPoolExecutor(8) as threads:
        for fetched in [threads.submit(fetch) for _ in range(8)]:
            fetched.result()

    assert held(cache) == set(range(8, 16))
    assert cache.used_bytes() == 8 * SIZE
    cache.close()
