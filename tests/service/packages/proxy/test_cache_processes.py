"""Processes that are killed, share a cache, or find no room: no file is damaged, none is lost."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from service.core.errors import StoreUnavailable
from service.packages.proxy.disk_cache import DiskCache
from service.packages.refusals import PACKAGE_CACHE_FULL
from tests.budgets import budget
from tests.interpreters import run_module
from tests.polling import until
from tests.service.packages.proxy.cache_process import Order
from tests.service.packages.proxy.files import (
    BIG,
    PATH,
    Valve,
    key_of,
    open_files,
    read_to_failure,
    unsized,
)
from tests.service.packages.proxy.registry import FakeRegistry

KEY = key_of(BIG)
STEPS_MAX = 40
NAMED = KEY.file.hex


async def get_in_process(
    folder: Path, registry: FakeRegistry, last: int = 0
) -> subprocess.CompletedProcess[Any]:
    """Get the file in a process of its own, see `Order`."""
    order = Order(str(folder), registry.url, KEY.file.digest, last)
    given = msgspec.json.encode(order).decode()
    return await asyncio.to_thread(run_module, "tests.service.packages.proxy.cache_process", given)


@pytest.mark.slow
class TestKilled:
    async def test_at_no_step_a_kill_leaves_a_damaged_file(self, tmp_path, registry, http):
        registry.says(PATH, BIG)
        names = []
        for last in range(1, STEPS_MAX):
            folder = tmp_path / str(last)
            killed = await get_in_process(folder, registry, last)
            if killed.returncode == 0:
                break
            assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
            async with open_files(folder, registry, http) as files:
                left = [path.read_bytes() for path in files.folder.glob("kept/*/*")]
                assert left in ([], [BIG])
                names.append(len(left))
                await files.cache.sweep()
                assert files.parts() == []
                assert await files.get(KEY) == BIG

        assert killed.stdout.decode() == NAMED
        # Some were killed before the rename, and at least one between it and the last sync.
        assert names == sorted(names)
        assert set(names) == {0, 1}

    async def test_in_the_middle_of_a_download_nothing_is_left(self, tmp_path, registry, http):
        registry.does(PATH, Valve(BIG[:600_000], BIG[600_000:]))
        killing = asyncio.create_task(get_in_process(tmp_path, registry, last=2))
        assert (await killing).returncode == -signal.SIGKILL
        async with open_files(tmp_path, registry, http) as files:
            assert len(files.parts()) == 1
            await files.cache.sweep()

            assert files.parts() == []


class TestShared:
    @pytest.mark.slow
    async def test_processes_download_while_another_one_evicts(self, tmp_path, registry, http):
        """Each gets the whole file, and so does who opens it a moment before it goes."""
        registry.says(PATH, BIG)
        count = budget(4, 12)
        async with open_files(tmp_path, registry, http, bytes_max=1, is_alone=False) as files:
            processes = [
                asyncio.create_task(get_in_process(tmp_path, registry)) for _ in range(count)
            ]
            while not all(process.done() for process in processes):
                await files.cache.sweep()
                assert await files.get(KEY) == BIG
            for process in processes:
                assert process.result().returncode == 0, process.result().stderr.decode()
            ended = [process.result() for process in processes]
            assert [one.stdout.decode() for one in ended] == [NAMED] * count

    async def test_a_part_is_not_removed_between_its_making_and_its_lock(self, tmp_path):
        """The sweep of another process may run at any time."""
        folder = DiskCache(tmp_path, 2**30, free_bytes_min=0)
        made = []

        def make() -> None:
            made.extend(folder.new_part(0, "acme") for _ in range(200))

        making = asyncio.create_task(asyncio.to_thread(make))
        while not making.done():
            await asyncio.to_thread(folder.remove_left_parts)
        await making

        assert all(part.path.exists() for part in made)
        for part in made:
            os.close(part.descriptor)
        assert folder.remove_left_parts() == 200


class TestNoRoom:
    async def test_without_room_no_byte_is_sent(self, tmp_path, registry, http):
        """The audit log on the same disk must go on."""
        registry.says(PATH, BIG)
        async with open_files(tmp_path, registry, http, free_bytes_min=2**60) as files:
            with pytest.raises(PACKAGE_CACHE_FULL) as full:
                await files.open(KEY)

            assert full.value.status == 503
            assert "COUNTERSIGN_PROXY_CACHE_BYTES_MAX" in full.value.text
            assert (files.kept(), files.parts()) == ([], [])

    async def test_a_document_that_states_a_huge_size_does_not_empty_the_cache(
        self, tmp_path, registry, http
    ):
        registry.says(PATH, BIG)
        async with open_files(tmp_path, registry, http) as files:
            await files.get(KEY)
            await files.settled()
            registry.does("/files/b", unsized(b"b"))
            admit = partial(files.upstream.admit_file, f"{registry.url}/files/b", "acme")
            with pytest.raises(PACKAGE_CACHE_FULL):
                await files.cache.open(key_of(b"b"), 2**60, admit)

            assert files.kept() == [KEY.name]

    @pytest.mark.parametrize("step", ["fsync", "rename"])
    async def test_a_file_that_cannot_be_kept_is_served_all_the_same(
        self, tmp_path, registry, http, monkeypatch, step
    ):
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        registry.says(PATH, BIG)
        async with open_files(tmp_path, registry, http) as files:
            with monkeypatch.context() as patch, capture_logs() as logs:
                patch.setattr(*{"fsync": (os, "fsync"), "rename": (Path, "rename")}[step], full)
                assert await files.get(KEY) == BIG
                await files.settled()

            assert [line["event"] for line in logs] == ["package_not_cached"]
            assert (files.kept(), files.parts()) == ([], [])
            assert await files.get(KEY) == BIG


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
class TestSmallDisk:
    """The disk is a real one, of 800 KB."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        folder = tmp_path / "disk"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", "size=800k", "countersign-test", str(folder)]
        subprocess.run(["mount", *options], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)

    async def test_a_disk_that_fills_up_breaks_the_download_off(self, disk, registry, http):
        """The size was not known."""
        registry.does(PATH, unsized(BIG))
        async with open_files(disk, registry, http) as files:
            got = bytearray()
            error = await read_to_failure(await files.open(KEY), got)
            assert isinstance(error, StoreUnavailable)
            assert len(got) < len(BIG)
            await files.settled()
            await until(lambda: os.statvfs(disk).f_bfree * 4 > os.statvfs(disk).f_blocks * 3)

            assert (files.kept(), files.parts()) == ([], [])

    async def test_a_file_that_does_not_fit_is_not_begun(self, disk, registry, http):
        registry.says(PATH, BIG)
        async with open_files(disk, registry, http) as files:
            with pytest.raises(PACKAGE_CACHE_FULL):
                await files.open(KEY)

    async def test_old_files_make_room_for_new_ones(self, disk, registry, http):
        """The limit of the cache may be more than the disk has."""
        async with open_files(disk, registry, http) as files:
            for number in range(8):
                content = bytes([number]) * 200_000
                registry.says(PATH, content)
                assert await files.get(key_of(content)) == content
                await files.settled()

            assert 1 <= len(files.kept()) <= 4
