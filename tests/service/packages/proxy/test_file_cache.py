"""A package file is fetched once, checked, and never served if it is not what it should be."""

import asyncio
import os
import time
from contextlib import aclosing, asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs

from analytics.model.errors import StoreFault
from service.packages.proxy.admission import Permit
from service.packages.proxy.answers import FileStream, UpstreamLimits
from service.packages.proxy.disk_cache import OpenedFile
from service.packages.proxy.downloads import HOLD_BACK_BYTES, DownloadReader
from service.packages.proxy.file_cache import LOADED_FILE_BYTES_MAX, LOADED_S
from service.packages.proxy.file_keys import CacheKey, parse_file_key
from service.packages.proxy.upstream import AdmittedFile
from service.packages.refusals import UpstreamFailed, UpstreamMissing
from tests.polling import until
from tests.proc_files import open_names
from tests.service.packages.proxy.files import (
    BIG,
    PATH,
    Valve,
    cut_after,
    key_of,
    open_files,
    read,
    read_to_failure,
    unsized,
)

KEY = key_of(BIG)


def descriptors() -> int:
    """How many this process has open below a folder of parts or kept files."""
    return sum("/parts/" in name or "/kept/" in name for name in open_names("self"))


class TestRegistries:
    async def test_a_file_of_one_registry_is_not_that_of_another(self, files):
        files.registry.says(PATH, BIG)
        await files.get(KEY)
        await files.settled()
        files.registry.says(PATH, b"", status=404)
        other = key_of(BIG, registry="02" * 32)
        before = files.folder / "kept" / KEY.file.hex[:2] / str(KEY.file)
        before.write_bytes(BIG)

        assert not await files.cache.has(other)
        with pytest.raises(UpstreamMissing):
            await files.open(other)
        assert await files.get(KEY) == BIG

    async def test_a_file_in_memory_is_of_its_registry_alone(self, files):
        files.registry.says(PATH, b"small")
        key = key_of(b"small")
        await files.get(key)
        await files.settled()
        await files.cache.load(key, await files.open(key))

        assert files.cache.loaded(key, None) is not None
        assert files.cache.loaded(key_of(b"small", registry="02" * 32), None) is None

    async def test_a_download_is_joined_only_at_its_registry(self, files):
        valve = Valve(BIG[:100], BIG[100:])
        files.registry.does(PATH, valve)
        first = asyncio.create_task(files.get(KEY))
        await valve.has_begun.wait()
        files.registry.says(PATH, b"", status=404)

        with pytest.raises(UpstreamMissing):
            await files.open(key_of(BIG, registry="02" * 32))
        valve.is_open.set()
        assert await first == BIG


class TestLoaded:
    async def test_a_small_file_stays_in_memory_for_a_minute(self, tmp_path, registry, http):
        """Jobs of one push install the same packages: each would open, read and close them."""
        now = 0.0
        async with open_files(tmp_path, registry, http, timer=lambda: now) as files:
            registry.says(PATH, b"small")
            key = key_of(b"small")
            await files.get(key)
            await files.settled()
            assert files.cache.loaded(key, None) is None

            loaded = await files.cache.load(key, await files.open(key))

            assert loaded.part() == b"small"
            assert loaded.part(1, 3) == b"ma"
            assert files.cache.loaded(key, 5) is loaded
            assert descriptors() == 0
            with pytest.raises(UpstreamFailed):
                files.cache.loaded(key, 6)
            now = LOADED_S
            assert files.cache.loaded(key, None) is None

    async def test_a_large_file_is_read_from_disk(self, files):
        """Memory is for what is requested often and costs more to open than to send."""
        files.registry.says(PATH, BIG)
        await files.get(KEY)
        await files.settled()

        cached = await files.open(KEY)

        assert len(BIG) > LOADED_FILE_BYTES_MAX
        assert await files.cache.load(KEY, cached) is cached
        assert files.cache.loaded(KEY, None) is None
        await cached.close()


class TestServing:
    @pytest.mark.parametrize("size", [0, 1, HOLD_BACK_BYTES, HOLD_BACK_BYTES + 1, len(BIG)])
    @pytest.mark.parametrize("algorithm", ["sha256", "sha512", "sha1"])
    async def test_a_file_is_fetched_once(self, files, size, algorithm):
        content = BIG[:size]
        key = key_of(content, algorithm)
        files.registry.says(PATH, content)

        assert await files.get(key, size) == content
        await files.settled()
        assert files.kept() == [key.name]
        again = await files.open(key, size)

        assert isinstance(again, OpenedFile)
        assert again.size == size
        assert await read(again) == content
        assert files.registry.times(PATH) == 1
        assert descriptors() == 0

    async def test_the_size_need_not_be_known(self, files):
        """Npm's documents do not state it, and a registry may send chunks."""
        files.registry.does(PATH, unsized(BIG))

        reader = await files.open(KEY)

        assert reader.size is None
        assert await read(reader) == BIG
        assert reader.size == len(BIG)

    async def test_a_missing_file_is_missing(self, files):
        with pytest.raises(UpstreamMissing):
            await files.open(KEY)

        assert files.kept() == []

    async def test_many_readers_share_one_download(self, files):
        """Jobs of one matrix start in the same second."""
        valve = Valve(BIG[:300_000], BIG[300_000:])
        files.registry.does(PATH, valve)

        readers = [asyncio.create_task(files.get(KEY, len(BIG))) for _ in range(10)]
        await valve.has_begun.wait()
        readers += [asyncio.create_task(files.get(KEY)) for _ in range(10)]
        valve.is_open.set()

        assert set(await asyncio.gather(*readers)) == {BIG}
        assert files.registry.times(PATH) == 1
        assert (files.cache.counts["downloads"], files.cache.counts["joined"]) == (1, 19)

    async def test_bytes_are_passed_on_while_others_are_to_come(self, files):
        """A large wheel must not look like a server that hangs."""
        valve = Valve(BIG[:-1], BIG[-1:])
        files.registry.does(PATH, valve)
        reader = await files.open(KEY)

        async with aclosing(reader.pieces()) as pieces:
            got = b""
            while len(got) < 3 * 256 * 1024 - HOLD_BACK_BYTES:
                got += await anext(pieces)
            assert BIG.startswith(got)
            valve.is_open.set()
            got += b"".join([piece async for piece in pieces])

        assert got == BIG

    async def test_a_reader_that_leaves_ends_nothing_for_others(self, files):
        valve = Valve(BIG[:600_000], BIG[600_000:])
        files.registry.does(PATH, valve)
        first, second = await files.open(KEY), await files.open(KEY)
        async with aclosing(first.pieces()) as pieces:
            await anext(pieces)
        valve.is_open.set()

        assert await read(second) == BIG

    async def test_a_download_without_readers_is_there_for_the_next(self, files):
        """A client that timed out tries again."""
        valve = Valve(BIG[:600_000], BIG[600_000:])
        files.registry.does(PATH, valve)
        reader = await files.open(KEY)
        await reader.close()
        valve.is_open.set()

        await files.settled()
        assert files.kept() == [KEY.name]
        assert await files.get(KEY) == BIG
        assert files.registry.times(PATH) == 1

    async def test_a_download_without_readers_ends_after_a_while(self, tmp_path, registry, http):
        valve = Valve(BIG[:600_000], BIG[600_000:])
        registry.does(PATH, valve)
        async with open_files(tmp_path, registry, http, abandoned_s=0.01) as files:
            reader = await files.open(KEY)
            assert files.parts() != []
            await reader.close()

            await until(lambda: files.parts() == [] and descriptors() == 0)
            valve.is_open.set()
            assert await files.get(KEY) == BIG
            assert registry.times(PATH) == 2

    async def test_a_request_that_is_cancelled_leaves_nothing_open(self, files):
        valve = Valve(BIG[:600_000], BIG[600_000:])
        files.registry.does(PATH, valve)
        waiting = asyncio.create_task(files.get(KEY))
        await valve.has_begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])

        assert waiting.cancelled()
        valve.is_open.set()
        await until(lambda: files.kept() == [KEY.name] and descriptors() == 0)

    async def test_closing_ends_downloads(self, tmp_path, registry, http):
        registry.does(PATH, Valve(BIG[:600_000], BIG[600_000:]))
        async with open_files(tmp_path, registry, http) as files:
            reader = await files.open(KEY)
            reading = asyncio.create_task(read(reader))
            await asyncio.sleep(0)

        with pytest.raises(UpstreamFailed):
            await reading
        assert descriptors() == 0


class TestLies:
    """What a registry sends is the file its document names, or no file at all."""

    @pytest.mark.parametrize(
        ("sent", "expected_size"),
        [
            pytest.param(BIG[:-1] + b"x", None, id="digest"),
            pytest.param(BIG[:-1] + b"x", len(BIG), id="digest-right-size"),
            pytest.param(BIG + b"x", None, id="longer"),
            pytest.param(BIG[:-1], None, id="shorter"),
            pytest.param(b"", None, id="empty"),
        ],
    )
    @pytest.mark.parametrize("is_sized", [True, False])
    async def test_the_last_bytes_are_held_back(self, files, sent, expected_size, is_sized):
        """Without them no client takes the file for whole, and nothing is cached."""
        files.registry.does(PATH, unsized(sent))
        if is_sized:
            files.registry.says(PATH, sent)
        reader = await files.open(KEY, expected_size)
        with capture_logs() as logs:
            got = bytearray()
            error = await read_to_failure(reader, got)

        assert isinstance(error, UpstreamFailed)
        assert len(got) <= max(0, len(sent) - HOLD_BACK_BYTES)
        assert [line["event"] for line in logs] == ["package_not_as_documented"]
        await files.settled()
        assert descriptors() == 0
        assert files.kept() == []

    async def test_no_more_than_that_is_sent_while_the_end_is_awaited(self, files):
        """All bytes may be there, and only their end shows that they are wrong."""
        is_ended = asyncio.Event()

        async def pieces():
            for at in range(0, len(BIG), 2**18):
                yield BIG[at : at + 2**18]
            await is_ended.wait()

        @asynccontextmanager
        async def open_stream():
            async with aclosing(pieces()) as stream:
                yield FileStream(None, stream)

        async def admit():
            return AdmittedFile(open_stream, Permit(lambda: None), "acme")

        reader = await files.cache.open(key_of(b"other"), None, admit)
        got = bytearray()
        reading = asyncio.create_task(read_to_failure(reader, got))
        await until(lambda: len(got) >= len(BIG) - HOLD_BACK_BYTES)
        is_ended.set()

        assert isinstance(await reading, UpstreamFailed)
        assert len(got) == len(BIG) - HOLD_BACK_BYTES

    @pytest.mark.parametrize("sent", [BIG[:-1], BIG + b"x"], ids=["shorter", "longer"])
    async def test_another_length_than_documented_is_not_begun(self, files, sent):
        """Said before the first byte, so the client gets an error status."""
        files.registry.says(PATH, sent)

        with pytest.raises(UpstreamFailed):
            await files.open(KEY, len(BIG))

        assert files.kept() == []

    @pytest.mark.parametrize("sent", [BIG[:-1], BIG + b"x"], ids=["shorter", "longer"])
    async def test_another_length_than_documented_breaks_off(self, files, sent):
        files.registry.does(PATH, unsized(sent))

        with pytest.raises(UpstreamFailed):
            await files.get(KEY, len(BIG))

        assert files.kept() == []

    async def test_a_connection_that_breaks_is_not_a_short_file(self, files):
        files.registry.does(PATH, cut_after(BIG, 700_000))

        with pytest.raises(UpstreamFailed):
            await files.get(KEY)

        await until(lambda: files.parts() == [])
        assert files.kept() == []

    async def test_all_readers_see_that_it_broke(self, files):
        files.registry.does(PATH, cut_after(BIG, 700_000))

        results = await asyncio.gather(*(files.get(KEY) for _ in range(5)), return_exceptions=True)

        assert {type(result) for result in results} == {UpstreamFailed}

    async def test_an_endless_file_ends_at_the_limit(self, tmp_path, registry, http):
        async def endless(asked, writer):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

        registry.does(PATH, endless)
        limits = UpstreamLimits(file_bytes=400_000)
        async with open_files(tmp_path, registry, http, limits=limits) as files:
            with pytest.raises(UpstreamFailed):
                await files.get(KEY)
            await until(lambda: files.parts() == [])

    async def test_a_slow_file_ends_at_the_limit(self, tmp_path, registry, http):
        registry.does(PATH, Valve(BIG[:600_000], BIG[600_000:]))
        limits = UpstreamLimits(progress_s=0.1)
        async with open_files(tmp_path, registry, http, limits=limits) as files:
            with pytest.raises(UpstreamFailed):
                await files.get(KEY)

    async def test_what_failed_is_fetched_again(self, files):
        files.registry.says(PATH, b"other")
        with pytest.raises(UpstreamFailed):
            await files.get(KEY)
        files.registry.says(PATH, BIG)

        assert await files.get(KEY) == BIG


class TestOnDisk:
    """Other programs, crashes and failing disks change files; clients do not notice."""

    async def cached(self, files) -> None:
        files.registry.says(PATH, BIG)
        await files.get(KEY)
        await files.settled()
        assert files.kept() == [KEY.name]

    async def test_the_cache_survives_a_restart(self, files, tmp_path, registry, http):
        await self.cached(files)

        async with open_files(tmp_path, registry, http) as later:
            assert await later.get(KEY, len(BIG)) == BIG
        assert registry.times(PATH) == 1

    @pytest.mark.parametrize(
        "damage",
        [BIG[:-1] + b"x", BIG[:-1], BIG + b"x", b""],
        ids=["flipped", "cut", "longer", "empty"],
    )
    @pytest.mark.parametrize("is_restarted", [True, False])
    async def test_a_damaged_file_is_fetched_again(
        self, files, tmp_path, registry, http, damage, is_restarted
    ):
        await self.cached(files)
        files.path(KEY).write_bytes(damage)

        with capture_logs() as logs:
            if is_restarted:
                async with open_files(tmp_path, registry, http) as later:
                    assert await later.get(KEY) == BIG
            else:
                assert await files.get(KEY) == BIG

        assert [line["event"] for line in logs] == ["cached_package_damaged"]
        assert registry.times(PATH) == 2

    async def test_no_file_is_served_from_a_link(self, files, tmp_path):
        """Its target may be outside the cache."""
        (tmp_path / "secret").write_bytes(BIG)
        files.path(KEY).parent.mkdir(parents=True)
        files.path(KEY).symlink_to(tmp_path / "secret")

        with pytest.raises(Exception, match="storage"):
            await files.get(KEY)

    async def test_a_document_that_states_another_size_removes_nothing(self, files):
        """One wrong document must not empty the cache of others."""
        await self.cached(files)

        with pytest.raises(UpstreamFailed):
            await files.open(KEY, 17)

        assert files.kept() == [KEY.name]
        assert descriptors() == 0

    async def test_a_file_that_becomes_shorter_while_it_is_read_breaks_off(self, files):
        await self.cached(files)
        file = await files.open(KEY)
        got = bytearray()
        error = await read_to_failure(file, got, lambda: os.truncate(files.path(KEY), 0))

        assert isinstance(error, StoreFault)
        assert len(got) < len(BIG)

    async def test_one_that_was_checked_is_checked_once(self, files, tmp_path, registry, http):
        """Fifty jobs that start after a restart read it through once."""
        await self.cached(files)

        async with open_files(tmp_path, registry, http) as later:
            before = files.path(KEY).stat()
            got = await asyncio.gather(*(later.get(KEY) for _ in range(50)))
            assert set(got) == {BIG}
            assert list(later.cache._verified) == [KEY]
        assert files.path(KEY).stat().st_mtime_ns == before.st_mtime_ns


class TestEviction:
    async def filled(self, files, count: int = 4, *, first: int = 0, org="acme") -> list[CacheKey]:
        """Files of 1,000 bytes, last used a minute apart, the lowest number longest ago."""
        keys = []
        for number in range(first, first + count):
            content = bytes([number]) * 1000
            key = key_of(content)
            files.registry.says(f"/files/{number}", content)
            admit = partial(files.upstream.admit_file, f"{files.registry.url}/files/{number}", org)
            await read(await files.cache.open(key, 1000, admit))
            await files.settled()
            used_ns = time.time_ns() - (100 - number) * 60 * 10**9
            os.utime(files.path(key), ns=(used_ns, files.path(key).stat().st_mtime_ns))
            keys.append(key)
        return keys

    async def test_the_least_recently_used_go_first(self, tmp_path, registry, http):
        """By their use, also before a restart, not by when they were fetched."""
        async with open_files(tmp_path, registry, http, bytes_max=2**40) as files:
            keys = await self.filled(files)
            file = await files.open(keys[0])
            await file.close()
        async with open_files(tmp_path, registry, http, bytes_max=2400) as files:
            await files.cache.sweep()

            assert files.kept() == sorted([keys[0].name, keys[3].name])
            assert await files.cache.usage() == type(await files.cache.usage())(2, 2000)

    async def test_the_downloads_of_one_organisation_leave_the_files_of_others(
        self, tmp_path, registry, http
    ):
        async with open_files(tmp_path, registry, http, bytes_max=2**40) as files:
            others = await self.filled(files, 2, org="other")
            many = await self.filled(files, 10, first=2)
        async with open_files(tmp_path, registry, http, bytes_max=6000) as files:
            await files.cache.sweep()

            assert files.kept() == sorted(key.name for key in [*others, *many[-3:]])

    async def test_downloads_keep_the_cache_within_its_limit(self, tmp_path, registry, http):
        async with open_files(tmp_path, registry, http, bytes_max=3500) as files:
            keys = await self.filled(files, 8)
            await until(lambda: len(files.kept()) <= 3)

            assert keys[-1].name in files.kept()

    async def test_a_file_that_is_read_stays_readable(self, files, tmp_path, registry, http):
        registry.says(PATH, BIG)
        await files.get(KEY)
        await files.settled()
        reader = await files.open(KEY)
        async with aclosing(reader.pieces()) as pieces:
            got = await anext(pieces)
            async with open_files(tmp_path, registry, http, bytes_max=1) as other:
                await other.cache.sweep()
            assert files.kept() == []
            got += b"".join([piece async for piece in pieces])

        assert got == BIG

    async def test_a_process_does_not_evict_what_another_one_downloads(
        self, files, tmp_path, registry, http
    ):
        valve = Valve(BIG[:600_000], BIG[600_000:])
        registry.does(PATH, valve)
        reading = asyncio.create_task(files.get(KEY))
        await until(lambda: files.parts() != [])
        async with open_files(tmp_path, registry, http, bytes_max=1, is_alone=False) as other:
            await other.cache.sweep()
            assert len(files.parts()) == 1
            other.cache._folder.remove_left_parts()
            valve.is_open.set()
            assert await reading == BIG


async def test_two_processes_may_download_the_same(files, tmp_path, registry, http):
    """Each for itself; the later rename replaces the same bytes."""
    valve = Valve(BIG[:600_000], BIG[600_000:])
    registry.does(PATH, valve)
    async with open_files(tmp_path, registry, http, is_alone=False) as other:
        both = [asyncio.create_task(one.get(KEY)) for one in (files, other)]
        await until(lambda: len(files.parts()) == 2)
        valve.is_open.set()

        assert await asyncio.gather(*both) == [BIG, BIG]
        await until(lambda: files.parts() == [])
        assert files.kept() == [KEY.name]
        assert await files.get(KEY) == await other.get(KEY) == BIG
        assert registry.times(PATH) == 2


async def test_a_download_can_be_waited_for_as_a_whole(files):
    """No part of it may be sent before its digest is right."""
    valve = Valve(BIG[:600_000], BIG[600_000:])
    files.registry.does(PATH, valve)
    reader = await files.open(KEY)
    assert isinstance(reader, DownloadReader)
    complete = asyncio.create_task(reader.complete())
    await asyncio.sleep(0)
    assert not complete.done()
    valve.is_open.set()

    file = await complete

    assert file.size == len(BIG)
    part = b"".join([piece async for piece in file.pieces(300_000, 900_001)])
    assert part == BIG[300_000:900_001]
    await files.settled()
    assert descriptors() == 0


async def test_a_file_can_be_looked_into_after_it_was_evicted(files, tmp_path, registry, http):
    registry.says(PATH, BIG)
    await files.get(KEY)
    await files.settled()
    file = await files.open(KEY)
    assert isinstance(file, OpenedFile)
    files.path(KEY).unlink()

    assert await file.compute(lambda path: path.read_bytes()) == BIG
    assert await file.compute(lambda path: path.read_bytes()[:5]) == BIG[:5]
    await file.close()
    assert descriptors() == 0


async def test_a_broken_download_never_is_a_whole(files):
    files.registry.says(PATH, BIG[:-1] + b"x")
    reader = await files.open(KEY)
    assert isinstance(reader, DownloadReader)

    with pytest.raises(UpstreamFailed):
        await reader.complete()


@pytest.mark.parametrize(
    "text",
    [
        "md5:" + "0" * 32,
        "sha256:" + "0" * 63,
        "sha256:" + "A" * 64,
        "sha256:../../../../etc/passwd",
        "sha256",
        "",
        "sha1:" + "0" * 39 + "/",
    ],
)
def test_what_is_no_digest_is_no_name_of_a_file(text):
    with pytest.raises(ValueError, match="digest"):
        parse_file_key(text)
